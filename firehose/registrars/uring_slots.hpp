// The slots of one ring's table: which are taken, and what each registration is. No system calls here.
//
// Lock-free, because a lock would cost as much as the cheapest registration: a bit per slot says taken, and
// a record per slot carries a generation, odd while a registration lives. Whoever took a slot
// writes its record; whoever moves the generation from odd to even owns the slot and gives it back.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// Where a registration lives in its ring: its first slot and that slot's generation.
struct UringRun {
  uint32_t first = 0;
  uint32_t generation = 0;
};

class UringSlots {
 public:
  // Longest run of neighbouring slots; a run lies within one word of the bitmap.
  static constexpr uint32_t kMaxRun = 64;

  // All slots free. False if there is no memory. Before anything else.
  bool make(uint32_t slots) noexcept;
  uint32_t size() const noexcept { return size_; }

  // Takes `count` neighbouring free slots; false if there are none. With count == 1 it succeeds whenever
  // fewer slots than size() are taken or being taken, which the caller counts.
  // Cost: one locked instruction, and a load per 64 full slots between the last search and the find.
  bool take(uint32_t count, uint32_t* first) noexcept;
  void give(uint32_t first, uint32_t count) noexcept;

  // Makes the taken slot a live registration; answers its generation.
  uint32_t publish(uint32_t slot, MemoryRange range, uint64_t charge_bytes) noexcept;
  // Ends it, if `run` is a live registration of exactly `range`: true for one caller alone.
  bool retire(UringRun run, MemoryRange range, uint64_t* charge_bytes) noexcept;
  // The range of a live registration; false if it is none.
  bool find(UringRun run, MemoryRange* range) const noexcept;

 private:
  struct Record {
    // Written between take() and the release store of an odd generation; read after an acquire load of
    // it. Relaxed atomics, since a stale key may read them while the slot's next owner writes.
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
  // A bit is set with acquire and cleared with release: the next owner sees the last one's record.
  std::unique_ptr<std::atomic<uint64_t>[]> taken_;
  std::unique_ptr<Record[]> records_;
  // Where the last search ended: pins made one after the other are neighbours, so that evicting them in
  // the same order clears them in one call. Relaxed, a hint.
  std::atomic<uint32_t> next_word_{0};
};

}  // namespace hydrant
