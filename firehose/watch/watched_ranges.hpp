// The memory that is registered with the userfaultfd, so that a miss there needs no registration; and the
// mutex of what is watched (docs/concurrency.md, "Locks").
//
// Invariant: after forget_after_loss() a range of the set is registered, except that a change of which the
// kernel's report is still unread may have ended that. The set may lack registered memory: it only saves
// registrations. changes() grows with each change that is entered here, and before the set can lack one.
//
// A thread that cannot take the mutex calls note_lost() in place of an entry: the next holder that needs the
// set clears it. The number grows first and the mark is set second, so that a holder that has cleared the set
// sees that its earlier queries of mappings may be outdated.
//
// Threads: any. The mutex is a leaf. Signal handlers and the reader only try it.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/range_set.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/ranges_lock.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class WatchedRanges {
 public:
  constexpr WatchedRanges() noexcept = default;
  WatchedRanges(const WatchedRanges&) = delete;
  WatchedRanges& operator=(const WatchedRanges&) = delete;

  Mutex& mutex() noexcept HYDRANT_TSA(lock_returned(mu_)) { return mu_; }
  [[nodiscard]] bool map(const RangesLock&) noexcept { return watched_.map(kMaxRanges); }

  // Number of changes entered or lost.
  uint64_t changes() const noexcept { return changes_.load(std::memory_order_seq_cst); }
  // The registrations have changed, and the set could not be updated.
  void note_lost() noexcept;
  // Memory of the range is not watched any more. If the mutex is not available soon, everything counts as
  // lost.
  void drop(MemoryRange range) noexcept HYDRANT_EXCLUDES(mu_);

  // Clears the set if changes were lost.
  void forget_after_loss(const RangesLock&) noexcept;
  const RangeSet& ranges(const RangesLock&) const noexcept { return watched_; }
  // False if something has changed since changes() returned this number, or was lost.
  bool is_current(const RangesLock& lock, uint64_t changes_before) noexcept;
  void add(const RangesLock&, MemoryRange range) noexcept;
  // Precedes the entry of a change that is not late.
  void begin_change(const RangesLock& lock) noexcept;
  void remove(const RangesLock&, MemoryRange range) noexcept;
  // Removes a range that is about to be unregistered; *changes: the number of that change. False: not all of
  // the range is in the set.
  bool take(const RangesLock&, MemoryRange range, uint64_t* changes) noexcept;
  // Enters a range again that stayed registered, unless something has changed since take().
  void put_back(const RangesLock&, MemoryRange range, uint64_t changes) noexcept;

  void reset_in_child() noexcept;

 private:
  static constexpr size_t kMaxRanges = 65536;

  alignas(64) Mutex mu_;
  RangeSet watched_;
  std::atomic<uint64_t> changes_{0};
  std::atomic<bool> is_outdated_{false};  // the next holder clears watched_
};

}  // namespace hydrant
