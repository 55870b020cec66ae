// Small reductions to all and barriers of a team whose members are on several nodes: memory, events and
// progress for MailboxOperations.
//
// When a team is made, each member offers the blocks of mailboxes that are free in its memory; the team takes
// the lowest that all have, and the members at each edge exchange the address of their memory. Those of the
// primordial team are in the job's store.
//
// An adapter's write wakes no thread, so a rank that waits for one sleeps only for short times
// (WaitTarget::kAdapter).
//
// Threads: any, but for start_mailboxes() and connect_mailboxes().
#pragma once

#include "am/exit/exit.hpp"
#include "extended/collective/mailbox/mailbox_memory.hpp"
#include "extended/collective/mailbox/mailbox_operations.hpp"
#include "extended/collective/operation/operation.hpp"
#include "extended/event/event.hpp"
#include "extended/message/send_failures.hpp"
#include "extended/team/active_teams.hpp"
#include "firehose/base/status.hpp"

#include <atomic>
#include <cstdint>
#include <gasnet_fwd.h>
#include <memory>

namespace hydrant {

// Allocates, registers and publishes the memory, if the job uses mailboxes. Called once, before the job's
// fence. Errors: as Bootstrap::put().
Status start_mailboxes() noexcept;
// Makes the primordial team's; after the fence. Errors: as Bootstrap::get() and Registrar::import_key().
Status connect_mailboxes() noexcept;

class MailboxTeam final : private MailboxMessages {
 public:
  // Operations of this process that used mailboxes.
  static uint64_t operations_of_all() noexcept;
  // Sets blocks aside until make() or withdraw(): another thread may be making a team. Bit i: block i.
  static uint32_t offer() noexcept;
  static void withdraw(uint32_t blocks) noexcept;
  // `all` are the blocks that all members offer, not 0; `operation` is the number of the team's collective
  // that exchanges addresses. Waits. Ends the job if there is no memory. A team of one member has none.
  static std::unique_ptr<MailboxTeam> make(const TeamMembers& members, uint32_t operation,
                                           uint32_t mine, uint32_t all) noexcept;
  // That of the primordial team; null: it has none.
  static MailboxTeam* of_world() noexcept { return world_; }
  // All its operations have to be complete.
  ~MailboxTeam();

  // Starts an operation. The event is GEX_EVENT_INVALID if it is complete. Ends the job if there is no
  // memory.
  gex_Event_t start(const MailboxOperations::Call& call) noexcept;
  // True if events of operations are not synced.
  bool has_outstanding() noexcept;
  const TeamMailboxes& mailboxes() const noexcept { return operations_.mailboxes(); }

 private:
  friend class TeamGuard<MailboxTeam>;
  friend class ActiveTeams<MailboxTeam>;
  friend Status connect_mailboxes() noexcept;
  static inline constinit MailboxTeam* world_ = nullptr;

  // `peers`: by edge; null where there are no mailboxes.
  MailboxTeam(const TeamMembers& members, uint32_t block, const MailboxPeer* const* peers) noexcept;

  TransferKey key_of(uint32_t edge, uint32_t operation) const noexcept {
    return {.team = members_.id, .operation = operation, .tag = edge};
  }
  Rank jobrank_at(uint32_t edge) const noexcept {
    return members_.jobrank(TeamMailboxes::peer_at(members_.rank, members_.size, edge));
  }
  Status post(uint32_t edge, uint32_t line, const uint64_t* words,
              uint32_t count) noexcept override;
  bool send(uint32_t edge, uint32_t operation, uint32_t signature, const std::byte* data,
            size_t bytes) noexcept override;
  bool receive(uint32_t edge, uint32_t operation, uint32_t signature, std::byte* data,
               size_t bytes) noexcept override;
  bool has(uint32_t edge, uint32_t operation, uint32_t signature) noexcept override;
  [[noreturn]] void refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept override;

  // Under the guard.
  uint32_t advance() noexcept { return operations_.advance(); }
  bool has_pending() const noexcept { return operations_.has_pending(); }
  // Null: it is complete.
  MailboxOperations::Pending* begin(const MailboxOperations::Call& call) noexcept;
  static bool event_is_done(hydrant_event& event) noexcept;
  static WaitTarget event_wait_target(const hydrant_event& event) noexcept;
  static bool event_is_ready(const hydrant_event& event) noexcept;
  static void log_pending_event(const hydrant_event& event);

  const TeamMembers members_;
  const uint32_t block_;
  const bool threaded_;
  uint32_t outstanding_ = 0;  // operations whose events are not synced; under the guard
  const MailboxPeer* peers_[TeamMailboxes::kMaxEdges] = {};
  SendFailures failures_{on_peer_failed};
  std::atomic<bool> busy_{false};  // threaded_: lock of operations_
  MailboxOperations operations_;
  MailboxTeam* next_active_ = nullptr;  // list of ActiveTeams
  std::atomic<bool> is_active_{false};  // written under ActiveTeams' mutex and the lock; relaxed
};

}  // namespace hydrant
