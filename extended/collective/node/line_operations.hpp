// Collectives among members that share memory: each contributes a line, and reads the lines of the
// others. Up to 48 bytes are in the lines: one transfer of a cache line per member, as in a barrier; no
// member runs for another. Reductions read all lines and combine them on each member, along the tree over
// consecutive ranks that all algorithms use (schedules.hpp).
//
// For longer vectors the lines have the addresses of the members' memory, which all members have mapped. Each
// does its part of the work (mapped_vectors.hpp), and says in a second line that it has. Vectors of up to
// kSlotBytes in memory that is not shared are copied to the member's slots; they need no second line. If
// longer ones are not shared, the line tells that, and the operation ends as kNotShared on all members.
//
// Any number of operations may be under way. Those for which no line is free wait in a list; advance()
// starts them.
//
// Threads: callers serialise all calls, but ready() and wait_target().
#pragma once

#include "extended/collective/node/fixed_array.hpp"
#include "extended/collective/node/mapped_vectors.hpp"
#include "extended/collective/node/team_lines.hpp"
#include "extended/collective/steps/reduction.hpp"
#include "extended/event/event.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

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
    // More than kMaxBytes: whether all members have this member's source, and its destination where others
    // write it, mapped; and, for the owner, which other operation does it if not.
    bool is_shared = false;
    uint32_t other = 0;

    bool is_vector() const noexcept { return bytes > TeamLines::kMaxBytes; }
  };
  enum class Stage : uint8_t {
    kQueued,
    kPublished,
    kWorking,    // vectors: all addresses are known
    kFinishing,  // vectors: this member's part is done
    kDone,
    kNotShared,  // the lines are done with it
  };
  // An operation that is not complete when its call returns.
  struct Pending {
    Call call;
    uint64_t number = 0;  // vectors: and the next one
    Stage stage = Stage::kQueued;
    size_t progress = 0;      // vectors: bytes of this member's part
    void* context = nullptr;  // the owner's
    Pending* next = nullptr;

    bool is_done() const noexcept { return stage >= Stage::kDone; }
    // The line that is awaited.
    uint64_t awaited() const noexcept { return number + (stage == Stage::kFinishing ? 1 : 0); }
    uint64_t last_number() const noexcept { return number + (call.is_vector() ? 1 : 0); }
  };

  struct Config {
    Rank rank = 0;
    FixedArray<TeamLines*> members;  // by rank
    uint64_t base = 0;  // the numbers of operations begin after it; all members agree on it
    void (*wake)(void* context,
                 Rank member) noexcept = nullptr;  // a member that may sleep; null: none sleeps
    Rank (*jobrank)(void* context, Rank member) noexcept = nullptr;  // for messages
    // The address at which this process has the shared memory of a member mapped.
    std::byte* (*map)(void* context, Rank member, uintptr_t address,
                      size_t bytes) noexcept = nullptr;
    void* context = nullptr;
  };
  explicit LineOperations(Config config) noexcept;
  // False: no memory; then it must not be used.
  bool ok() const noexcept { return config_.members.ok() && operands_.ok() && vectors_.ok(); }
  ~LineOperations();
  LineOperations(const LineOperations&) = delete;
  LineOperations& operator=(const LineOperations&) = delete;

  // Starts an operation. *pending is null if it is complete, else it is to be given to release(). False:
  // no memory.
  bool start(const Call& call, Pending** pending) noexcept;
  // Advances all operations. Returns the number that are complete since, or have work left.
  uint32_t advance() noexcept;
  // True if advance() would complete or publish the operation.
  bool is_ready(const Pending& pending) noexcept;
  // The processor of a member that the operation waits for, as far as its last line tells.
  WaitTarget wait_target(const Pending& pending) const noexcept;
  // A member that the operation waits for; the own rank if there is none.
  Rank missing_member(const Pending& pending) const noexcept;
  // Ends the use of a Pending that is done.
  void release(Pending* pending) noexcept;
  // The next operation that is kNotShared, and was not returned before; null: none.
  Pending* take_not_shared() noexcept;

  // Operations of this member. One thread at a time counts; any reads.
  struct Counts {
    std::atomic<uint64_t> lines{0};   // data in lines
    std::atomic<uint64_t> mapped{0};  // vectors in mapped memory
    std::atomic<uint64_t> slots{0};   // vectors in slots

    static void add(std::atomic<uint64_t>& count, uint64_t more = 1) noexcept {
      count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
    void add(const Counts& other) noexcept {
      add(lines, other.lines.load(std::memory_order_relaxed));
      add(mapped, other.mapped.load(std::memory_order_relaxed));
      add(slots, other.slots.load(std::memory_order_relaxed));
    }
  };
  const Counts& counts() const noexcept { return counts_; }
  // The highest number in use, for the next team that takes the memory over.
  uint64_t last_number() const noexcept { return last_; }
  bool is_idle() const noexcept { return first_ == nullptr; }
  // True if all members have completed all operations: the memory may be taken over.
  bool all_done() const noexcept;

 private:
  // The memory in which the members find a vector.
  enum class Place : uint8_t { kHidden, kMapped, kSlot };
  // The data of a vector's first line.
  struct Addresses {
    uintptr_t source = 0;  // kSlot: the index of the slot
    uintptr_t dest = 0;
    Place place = Place::kHidden;
  };
  static_assert(sizeof(Addresses) <= TeamLines::kMaxBytes);

  bool may_publish(uint64_t number) noexcept;
  bool may_publish(const Call& call, uint64_t number) noexcept;
  bool is_done_by_all(uint64_t number) noexcept;
  bool uses_slot(const Call& call) const noexcept;
  void publish(const Call& call, uint64_t number) noexcept;
  void write_line(uint64_t number, const void* data, size_t bytes, uint32_t signature) noexcept;
  bool contributes(const Call& call) const noexcept;
  // A reduction leaves a result here.
  bool writes_dest(const Call& call) const noexcept;
  bool try_publish(Pending& pending) noexcept;
  bool try_complete(Pending& pending) noexcept;
  bool try_complete(const Call& call, uint64_t number) noexcept;
  // True if lines of all members that the operation awaits are there.
  bool has_all(const Pending& pending) const noexcept;
  bool awaits(const Pending& pending, Rank member) const noexcept;
  // True if the operation is done.
  bool advance_vector(Pending& pending) noexcept;
  // Finds the vectors of all members. kHidden: some cannot be reached. kSlot: all are in slots.
  Place find_all(const Pending& pending) noexcept;
  std::byte* map(const Call& call, Rank member, uintptr_t address) noexcept;
  // False: more is to be done.
  bool work(Pending& pending, Place place) noexcept;
  Pending* take_pending() noexcept;
  bool has_line(Rank member, uint64_t number, uint32_t signature) const noexcept;
  const std::byte* data_of(Rank member, uint64_t number) const noexcept {
    return config_.members[member]->lines[number % TeamLines::kLines].data;
  }
  void reduce(const Call& call, uint64_t number) noexcept;
  Rank missing_for_queued() const noexcept;
  void note_done() noexcept;
  void wake_all() noexcept;

  const Config config_;
  FixedArray<std::byte> operands_;  // of a reduction: one of kMaxBytes per member
  MappedVectors vectors_;
  uint64_t last_ = 0;         // number of the latest operation
  uint64_t done_ = 0;         // own: all up to it are complete
  uint64_t done_by_all_ = 0;  // all up to it were complete on all members when last looked at
  uint32_t slot_ = 0;         // the next one
  uint64_t slot_numbers_[TeamLines::kSlots] = {};  // of the operations that used them last
  Counts counts_;
  Pending* first_ = nullptr;  // not done, in the order of numbers
  Pending* end_ = nullptr;
  Pending* free_ = nullptr;
  Pending* not_shared_ = nullptr;  // done, for take_not_shared()
};

}  // namespace hydrant
