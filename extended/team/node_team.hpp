// The collectives of a team whose members share memory: blocks of memory, events and progress for
// LineOperations. Vectors in memory that a member does not share take messages.
//
// A block is the same index on all members. When a team is made, each member offers the blocks that are
// free in its memory; the team takes the lowest that all have. A block of a destroyed team is free again
// once all members have completed its operations.
//
// Threads: any.
#pragma once

#include "extended/collective/node/line_operations.hpp"
#include "extended/collective/operation/operation.hpp"
#include "extended/team/active_teams.hpp"
#include "firehose/base/status.hpp"

#include <atomic>
#include <cstdint>
#include <gasnet_fwd.h>
#include <memory>

namespace hydrant {

// A rank's contribution to the making of a team.
struct NodeTeamOffer {
  uint64_t blocks = 0;  // bit i: block i is free, and reserved
  uint64_t base = 0;    // the team's operations have higher numbers

  NodeTeamOffer with(const NodeTeamOffer& other) const noexcept;
};

// Reserves the block of the primordial team. Called once, before the job is wired. Errors: kResource.
Status start_node_teams() noexcept;

class NodeTeam {
 public:
  // Adds the operations of this process in all node teams, also those that were destroyed. False, with
  // nothing added: another thread keeps the list of teams, perhaps this one below a signal handler.
  static bool add_counts_of_all(LineOperations::Counts* sum) noexcept;
  // Sets blocks aside until make() or withdraw(): another thread may be making a team.
  static NodeTeamOffer offer() noexcept;
  static void withdraw(const NodeTeamOffer& mine) noexcept;
  // `all` is the combination of all members' offers. Null if they share no memory or no block.
  static std::unique_ptr<NodeTeam> make(const TeamMembers& members, const NodeTeamOffer& mine,
                                        const NodeTeamOffer& all) noexcept;
  // That of the primordial team; null likewise. Cost: a load, except the first time.
  static NodeTeam* of_world() noexcept {
    NodeTeam* const known = world_.load(std::memory_order_acquire);
    return known != nullptr ? known : find_world();
  }
  ~NodeTeam();
  NodeTeam(const NodeTeam&) = delete;
  NodeTeam& operator=(const NodeTeam&) = delete;

  // True if events of operations are not synced.
  bool has_outstanding() noexcept;
  // False: trees are faster. The same answer on all members.
  bool takes(size_t bytes) const noexcept { return is_flat_ || bytes > TeamLines::kMaxBytes; }
  // Starts an operation, which takes() its bytes. `other` is the number of the operation that sends messages
  // if the memory of a vector is not shared; start() sets `is_shared`. The event is GEX_EVENT_INVALID if
  // it is complete. Ends the job if there is no memory.
  gex_Event_t start(LineOperations::Call& call) noexcept;

 private:
  static NodeTeam* find_world() noexcept;
  static inline constinit std::atomic<NodeTeam*> world_{nullptr};

  friend class NodeTeams;
  friend class TeamGuard<NodeTeam>;
  friend class ActiveTeams<NodeTeam>;

  NodeTeam(const TeamMembers& members, uint32_t block, uint64_t base) noexcept;

  static bool event_is_done(hydrant_event& event) noexcept;
  static bool event_is_ready(const hydrant_event& event) noexcept;
  static WaitTarget event_wait_target(const hydrant_event& event) noexcept;
  static void log_pending_event(const hydrant_event& event);
  // Under the lock. Advances all operations.
  uint32_t advance() noexcept;
  bool has_pending() const noexcept { return pending_ != 0; }
  // Starts those whose vectors are not shared with messages: after each call that may advance operations.
  void start_others() noexcept;
  static std::byte* map(void* self, Rank member, uintptr_t address, size_t bytes) noexcept;
  static void wake(void* self, Rank member) noexcept;
  static Rank jobrank(void* self, Rank member) noexcept;

  const TeamMembers members_;
  const uint32_t block_;
  const bool threaded_;
  const bool is_flat_;             // few enough members for lines of data
  const bool is_crowded_;          // more members than processors
  std::atomic<bool> busy_{false};  // threaded_: lock of operations_
  std::unique_ptr<LineOperations> operations_;
  uint32_t pending_ = 0;             // operations whose events are not synced; under the lock
  NodeTeam* next_active_ = nullptr;  // list of ActiveTeams
  NodeTeam* next_of_all_ = nullptr;  // list of NodeTeams
  // Written under ActiveTeams' mutex and the lock; relaxed.
  std::atomic<bool> is_active_{false};
};

}  // namespace hydrant
