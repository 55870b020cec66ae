// The slots of one ring's table: which are taken, and the registration in each. No system calls.
//
// Lock-free, because a lock would cost as much as the cheapest registration. A bit per slot says taken; a
// record per slot has a generation, which is odd while a registration lives. The thread that takes a slot
// writes its record. The thread that changes the generation from odd to even owns the slot and frees it.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// Location of a registration in its ring: its first slot and that slot's generation.
struct UringRun {
  uint32_t first = 0;
  uint32_t generation = 0;
};

class UringSlots {
 public:
  // Longest run of neighbouring slots; a run lies within a single bitmap word.
  static constexpr uint32_t kMaxRun = 64;

  // Allocates the table with all slots free; call it first. False if out of memory.
  bool make(uint32_t slots) noexcept;
  uint32_t size() const noexcept { return size_; }

  // Takes `count` adjacent free slots; false if there are none. With count == 1 it succeeds whenever fewer
  // than size() slots are taken or being taken; the caller keeps that count.
  // Cost: one locked instruction, and a load per 64 full slots that the search passes.
  bool take(uint32_t count, uint32_t* first) noexcept;
  void give(uint32_t first, uint32_t count) noexcept;

  // Makes the taken slot a live registration; returns its generation.
  uint32_t publish(uint32_t slot, MemoryRange range, uint64_t charge_bytes) noexcept;
  // Ends a live registration of exactly `range`. True for one caller only.
  bool retire(UringRun run, MemoryRange range, uint64_t* charge_bytes) noexcept;
  // Writes the range of a live registration; false if `run` is not live.
  bool find(UringRun run, MemoryRange* range) const noexcept;

 private:
  struct Record {
    // Written between take() and the release store of an odd generation; read after an acquire load of it.
    // Relaxed atomics, because a stale key may read them while the slot's next owner writes.
    std::atomic<uintptr_t> addr{0};
    std::atomic<size_t> len{0};
    std::atomic<uint64_t> charge_bytes{0};
    std::atomic<uint32_t> generation{0};
  };

  bool is_live(UringRun run) const noexcept {
    return run.first < size_ && run.generation % 2 == 1 &&
           records_[run.first].generation.load(std::memory_order_acquire) == run.generation;
  }

  uint32_t size_ = 0;
  uint32_t words_ = 0;
  // A bit is set with acquire and cleared with release: the next owner sees the previous owner's record.
  std::unique_ptr<std::atomic<uint64_t>[]> taken_;
  std::unique_ptr<Record[]> records_;
  // Word where the last search ended. Consecutive pins get adjacent slots, so evictions in the same order
  // clear them in one call. Relaxed: a hint.
  std::atomic<uint32_t> next_word_{0};
};

}  // namespace hydrant
