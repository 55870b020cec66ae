// Collectives of up to 48 bytes among members that share memory: each contributes a line, and reads the
// lines of the others. One transfer of a cache line per member, as in a barrier; no member runs for another.
//
// Reductions read all lines and combine them on each member, along the tree over consecutive ranks that all
// algorithms use (schedules.hpp).
//
// Any number of operations may be under way. Those for which no line is free wait in a list; advance()
// starts them.
//
// Threads: callers serialise all calls, but ready() and wait_target().
#pragma once

#include "extended/collective/node/team_lines.hpp"
#include "extended/collective/reduction.hpp"
#include "extended/event/event.hpp"
#include "rdma/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hydrant {

class LineOperations {
 public:
  enum class Kind : uint8_t { kBarrier, kBroadcast, kReduceToOne, kReduceToAll };

  struct Call {
    Kind kind = Kind::kBarrier;
    Rank root = 0;  // broadcast, reduction to one
    const std::byte* source = nullptr;
    std::byte* dest = nullptr;
    size_t bytes = 0;
    uint32_t signature = 0;
    Reduction reduction = {};
  };
  // An operation that is not complete when its call returns.
  struct Pending {
    Call call;
    uint64_t number = 0;
    bool is_published = false;
    bool is_done = false;
    Pending* next = nullptr;
  };

  struct Config {
    Rank rank = 0;
    std::vector<TeamLines*> members;  // by rank
    uint64_t base = 0;  // the numbers of operations begin after it; all members agree on it
    void (*wake)(void* context,
                 Rank member) noexcept = nullptr;  // a member that may sleep; null: none sleeps
    Rank (*jobrank)(void* context, Rank member) noexcept = nullptr;  // for messages
    void* context = nullptr;
  };
  explicit LineOperations(Config config) noexcept;
  ~LineOperations();
  LineOperations(const LineOperations&) = delete;
  LineOperations& operator=(const LineOperations&) = delete;

  // Starts an operation. *pending is null if it is complete, else it is to be given to release(). False:
  // no memory.
  bool start(const Call& call, Pending** pending) noexcept;
  // Advances all operations. Returns the number that are complete since.
  uint32_t advance() noexcept;
  // True if advance() would complete or publish the operation.
  bool is_ready(const Pending& pending) noexcept;
  // The processor of a member that the operation waits for, as far as its last line tells.
  WaitTarget wait_target(const Pending& pending) const noexcept;
  // A member that the operation waits for; the own rank if there is none.
  Rank missing_member(const Pending& pending) const noexcept;
  // Ends the use of a Pending that is done.
  void release(Pending* pending) noexcept;

  // The highest number in use, for the next team that takes the memory over.
  uint64_t last_number() const noexcept { return last_; }
  bool is_idle() const noexcept { return first_ == nullptr; }
  // True if all members have completed all operations: the memory may be taken over.
  bool all_done() const noexcept;

 private:
  bool may_publish(uint64_t number) noexcept;
  void publish(const Call& call, uint64_t number) noexcept;
  bool contributes(const Call& call) const noexcept;
  bool try_complete(const Call& call, uint64_t number) noexcept;
  bool has_line(Rank member, uint64_t number, uint32_t signature) const noexcept;
  const std::byte* data_of(Rank member, uint64_t number) const noexcept {
    return config_.members[member]->lines[number % TeamLines::kLines].data;
  }
  void reduce(const Call& call, uint64_t number) noexcept;
  void note_done() noexcept;
  void wake_all() noexcept;

  const Config config_;
  std::unique_ptr<std::byte[]> operands_;  // of a reduction: one of kMaxBytes per member
  uint64_t last_ = 0;                      // number of the latest operation
  uint64_t done_ = 0;                      // own: all up to it are complete
  uint64_t done_by_all_ = 0;  // all up to it were complete on all members when last looked at
  Pending* first_ = nullptr;  // not done, in the order of numbers
  Pending* end_ = nullptr;
  Pending* free_ = nullptr;
};

}  // namespace hydrant
