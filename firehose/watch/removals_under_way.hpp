// Removals (MADV_DONTNEED and the like) by calls that may not have returned: their memory may not be cached.
//
// Invariant: memory of a removal is under_way() until other memory is mapped there, or until every call that
// the hooks knew of when the removal was read has returned. Numbers grow: each removal that is read, and each
// grace period, gets a larger one than calls have noted that began before it.
//
// Threads: any. The reader numbers removals; methods that take a RangesLock need the mutex of the watched
// ranges; the others take it, those for signal handlers only try it.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/deferred_changes.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/ranges_lock.hpp"
#include "firehose/watch/removed_ranges.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class RemovalsUnderWay {
 public:
  constexpr RemovalsUnderWay(WatchedRanges& watched, const DeferredChanges& deferred,
                             const HookedCallsUnderWay& calls) noexcept
      : watched_(watched), deferred_(deferred), calls_(calls) {}

  [[nodiscard]] bool map(const RangesLock&) noexcept { return removed_.map(kMaxRemoved); }
  // Starts the numbers at 1, so that 0 can mean none. Called before other threads see the number.
  const uint64_t* show_newest() noexcept {
    newest_.store(1, std::memory_order_relaxed);
    return reinterpret_cast<const uint64_t*>(&newest_);
  }
  // The number of a removal that was just read.
  uint64_t next_number() noexcept { return newest_.fetch_add(1, std::memory_order_release) + 1; }
  // The number of a wait for calls that are inside a hook now.
  uint64_t begin_grace_period() noexcept {
    return newest_.fetch_add(1, std::memory_order_seq_cst) + 1;
  }

  // `number`: of next_number(), or RemovedRanges::kCallerUnknown.
  void add(const RangesLock&, MemoryRange range, uint64_t number) noexcept {
    removed_.add(range, number);
  }
  // Other memory may be mapped there from now on.
  void replace(const RangesLock&, MemoryRange range) noexcept;
  // The first part of the range that was removed; its length is 0 if there is none.
  MemoryRange first_in(const RangesLock&, MemoryRange range) const noexcept {
    return removed_.first_in(range);
  }

  // True if a removal in the range may not have ended, also if the reader is late.
  bool under_way(MemoryRange range) noexcept;
  // Drops the removals of the range that the hooks know to have ended, unless the mutex is held.
  void forget_ended(MemoryRange range) noexcept;

  void reset_in_child() noexcept { removed_.clear(); }

 private:
  static constexpr size_t kMaxRemoved = 16384;

  bool have_callers_returned(uint64_t number) const noexcept;

  WatchedRanges& watched_;
  const DeferredChanges& deferred_;
  const HookedCallsUnderWay& calls_;
  // Number of the newest removal read, or of the newest grace period.
  alignas(64) std::atomic<uint64_t> newest_{0};
  RemovedRanges removed_;
};

}  // namespace hydrant
