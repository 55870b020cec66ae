// Teams: ordered sets of the job's ranks. The primordial team is hydrant_world; clients make the others
// (gex_TM_Split(), gex_TM_Create()).
//
// Memory: none per member if the ranks of the job are first, first + stride, and so on, as of most splits;
// else 4 bytes per member and process for its rank in the job, and 6 to 12 for the way back.
//
// Threads: a team is constant but for the number of collectives, which its collective calls count.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "extended/collective/operation/operation.hpp"
#include "extended/team/mailbox_team.hpp"
#include "extended/team/node_team.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace hydrant {

// Finds the rank in a team of a rank of the job, in constant time: an open hash table.
class JobrankTable {
 public:
  // `jobranks` stays valid. False: no memory.
  bool make(const Rank* jobranks, Rank size) noexcept;
  // GEX_RANK_INVALID if it is no member.
  Rank find(Rank jobrank) const noexcept;
  // True if events of its collective operations are not synced.
  bool has_outstanding() const noexcept;

 private:
  uint32_t slot_of(Rank jobrank) const noexcept;

  const Rank* jobranks_ = nullptr;
  std::unique_ptr<Rank[]> slots_;
  uint32_t mask_ = 0;
};

class Team : public hydrant_team {
 public:
  // Takes the members' ranks in the job, in the order of their ranks. Null: no memory.
  static std::unique_ptr<Team> make(uint64_t id, gex_EP_t ep, Rank my_rank,
                                    std::unique_ptr<Rank[]> jobranks, Rank size) noexcept;
  // As Member::node_bits.
  void set_node_bits(uint32_t bits) noexcept { node_bits_ = bits; }

  TeamMembers members() const noexcept {
    return {.id = id_,
            .rank = rank,
            .size = size,
            .jobranks = jobranks,
            .first = first,
            .stride = stride,
            .node_bits = node_bits_};
  }
  // GEX_RANK_INVALID if it is no member.
  Rank find(Rank jobrank) const noexcept;
  // True if events of its collective operations are not synced.
  bool has_outstanding() const noexcept;

  // The client's scratch memory, which gex_TM_Destroy() gives back. Length 0: none was granted.
  gex_Memvec_t scratch = {};

  std::unique_ptr<NodeTeam> node;          // null: its members share no memory
  std::unique_ptr<MailboxTeam> mailboxes;  // null: it has `node`, or uses messages alone
  std::unique_ptr<Team> next;              // list of LiveTeams

 private:
  friend uint32_t next_collective(gex_TM_t tm) noexcept;

  Team() noexcept : hydrant_team{} {}

  uint64_t id_ = 0;
  uint32_t node_bits_ = 0;
  std::unique_ptr<Rank[]> storage_;
  JobrankTable table_;
  std::atomic<uint32_t> collectives_{0};
};

// True for what gex_TM_Pair() returns.
inline bool is_pair(gex_TM_t tm) noexcept { return (reinterpret_cast<uintptr_t>(tm) & 1) != 0; }

// Ends the job with a text unless `tm` may be a team. For a client with GASNET_DEBUG it has to be one.
void check_team(gex_TM_t tm, const char* call) noexcept;

TeamMembers members_of(gex_TM_t tm) noexcept;
// As members_of() the primordial team, also before there is a client.
TeamMembers members_of_world() noexcept;
// Member::node_bits of the primordial team. Called once, at start-up. Errors: as find_consecutive_hosts().
Status find_nodes_of_world() noexcept;
// Null: the team's members share no memory, or are too many.
NodeTeam* node_team_of(gex_TM_t tm) noexcept;
// Null: the team has lines on a node, or uses messages alone.
MailboxTeam* mailbox_team_of(gex_TM_t tm) noexcept;
// The number of the team's next collective operation on this rank.
uint32_t next_collective(gex_TM_t tm) noexcept;

}  // namespace hydrant
