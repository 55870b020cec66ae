// Reductions to all and barriers of a team with mailboxes: recursive doubling along the edges of the
// hypercube, with the same order of combination as the schedules (reduce_all_doubling()).
//
// Members that no power of two holds send their vector to the next member first, which represents them, and
// get the result from it. In each round the others send their vector to the member that differs in the
// round's bit, and combine it with that member's.
//
// Threads: one at a time.
#pragma once

#include "extended/collective/hypercube.hpp"
#include "extended/collective/mailbox/team_mailboxes.hpp"
#include "extended/collective/reduction.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The way to the peers: writes into mailboxes, and messages along the edges that have none. Never waits, runs
// no handlers.
class MailboxMessages : public MailboxWriter {
 public:
  // `operation`: number of the team's collective. False: retry later.
  virtual bool send(uint32_t edge, uint32_t operation, uint32_t signature, const std::byte* data,
                    size_t bytes) noexcept = 0;
  // False: it has not arrived. Ends the job if the peer's call has another signature.
  virtual bool receive(uint32_t edge, uint32_t operation, uint32_t signature, std::byte* data,
                       size_t bytes) noexcept = 0;
  // As receive(), without taking it.
  virtual bool has(uint32_t edge, uint32_t operation, uint32_t signature) noexcept = 0;
  // Ends the job: the peer's operation of this number is another call.
  [[noreturn]] virtual void refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept = 0;

 protected:
  ~MailboxMessages() = default;
};

class MailboxOperations {
 public:
  struct Call {
    const std::byte* source = nullptr;
    std::byte* dest = nullptr;
    size_t bytes = 0;  // at most MailboxLine::kMaxBytes; 0: a barrier
    Reduction reduction = {};
    uint32_t signature = 0;
    uint32_t operation = 0;  // number of the team's collective
  };
  // An operation that start() could not complete. The caller releases it when it is done.
  struct Pending {
    bool is_done = false;
    Call call;

   private:
    friend class MailboxOperations;
    uint64_t line = 0;
    uint32_t step = 0;     // 0: the represented member's vector; 1 + i: round i; then its result
    bool is_sent = false;  // this round's vector
    Pending* next = nullptr;
    alignas(64) std::byte vector[MailboxLine::kMaxBytes];
  };

  MailboxOperations(const TeamMailboxes::Config& mailboxes, MailboxMessages* messages) noexcept;
  ~MailboxOperations();
  MailboxOperations(const MailboxOperations&) = delete;
  MailboxOperations& operator=(const MailboxOperations&) = delete;

  // *pending is null if the operation is complete. False: no memory.
  bool start(const Call& call, Pending** pending) noexcept;
  // Advances all operations; returns the number that are complete now.
  uint32_t advance() noexcept;
  // False: all operations are complete.
  bool has_pending() const noexcept { return first_ != nullptr; }
  void release(Pending* pending) noexcept;

  // True if advance() would do something. Ends the job if the awaited peer makes another call.
  bool is_ready(const Pending& pending) noexcept;
  // The edge at which the operation waits; kNoEdge: for earlier operations, or for room.
  uint32_t awaited_edge(const Pending& pending) const noexcept;

  const TeamMailboxes& mailboxes() const noexcept { return mailboxes_; }

 private:
  uint32_t last_step() const noexcept { return fold_ + 1; }
  bool run(Pending& pending) noexcept;
  bool run_fold(Pending& pending) noexcept;
  bool run_round(Pending& pending, uint32_t edge) noexcept;
  bool run_unfold(Pending& pending) noexcept;
  bool send(const Pending& pending, uint32_t edge) noexcept;
  bool receive(const Pending& pending, uint32_t edge, std::byte* to) noexcept;

  TeamMailboxes mailboxes_;
  MailboxMessages* const messages_;
  const Hypercube cube_;
  const uint32_t fold_;  // edge between a member and that which represents it; number of rounds
  const uint32_t vertex_;
  const bool is_represented_;
  const bool represents_;
  Pending* first_ = nullptr;  // operations under way, in the order of their numbers
  Pending** end_ = &first_;
  Pending* free_ = nullptr;
};

}  // namespace hydrant
