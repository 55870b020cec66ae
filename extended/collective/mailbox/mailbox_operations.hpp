// Reductions to all and barriers of a team with mailboxes: recursive doubling along the edges of the
// hypercube, with the same order of combination as the schedules (reduce_all_doubling()).
//
// Members that no power of two holds send their vector to the next member first, which represents them, and
// get the result from it. In each round the others send their vector to the member that differs in the
// round's bit, and combine it with that member's.
//
// Two levels, for members that share nodes: along the lowest Config::node_bits edges only the upper member
// sends, and gets the result back. So one member of each group exchanges lines with other nodes.
//
// Threads: one at a time.
#pragma once

#include "extended/collective/mailbox/team_mailboxes.hpp"
#include "extended/collective/steps/reduction.hpp"

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
  virtual void refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept = 0;

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
    uint64_t line_ = 0;
    uint32_t step_ = 0;  // index of the next one
    Pending* next_ = nullptr;
    alignas(64) std::byte vector_[MailboxLine::kMaxBytes];
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
  // True if it waits at an edge without mailboxes.
  bool awaits_message(const Pending& pending) const noexcept {
    const uint32_t edge = awaited_edge(pending);
    return edge != TeamMailboxes::kNoEdge && !mailboxes_.has_mailboxes(edge);
  }

  const TeamMailboxes& mailboxes() const noexcept { return mailboxes_; }

 private:
  // A step of this member: the same list in each operation.
  struct Step {
    enum class Kind : uint8_t {
      kSend,     // the vector
      kLower,    // receive the vector of members before those that are combined here, and combine
      kHigher,   // of members behind them
      kReplace,  // receive the result
    };
    Kind kind = Kind::kSend;
    uint8_t edge = 0;
  };
  void add(Step::Kind kind, uint32_t edge) noexcept {
    steps_[step_count_++] = {.kind = kind, .edge = static_cast<uint8_t>(edge)};
  }
  void add_steps(uint32_t node_bits) noexcept;

  // True: the operation, or the step, is complete.
  bool run(Pending& pending) noexcept;
  bool run_step(Pending& pending, const Step& step) noexcept;
  bool send(const Pending& pending, uint32_t edge) noexcept;
  bool receive(const Pending& pending, uint32_t edge, std::byte* to) noexcept;

  TeamMailboxes mailboxes_;
  MailboxMessages* const messages_;
  Step steps_[2 * TeamMailboxes::kMaxEdges];
  uint32_t step_count_ = 0;
  Pending* first_ = nullptr;  // operations under way, in the order of their numbers
  Pending** end_ = &first_;
  Pending* free_ = nullptr;
};

}  // namespace hydrant
