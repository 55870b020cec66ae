// Thread stacks in watched memory. libc unmaps stacks inside calls without hooks, such as pthread_join(), and
// empties them when their threads end.
//
// Invariant: a noted address held a thread's descriptor when its mapping began to be watched, or when that
// thread ended in memory that may be registered with the userfaultfd. Neither its unmapping nor the end of
// that registration has been entered since. any() is true once an address was noted.
//
// Threads: any. The mutex is that of the watched ranges; any() needs none.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/range_set.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/ranges_lock.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant {

class ThreadStacks {
 public:
  constexpr ThreadStacks() noexcept = default;

  [[nodiscard]] bool map(const RangesLock&) noexcept {
    return descriptors_.map(kMax) && registered_.map(kMax);
  }
  // The range is about to be registered: from now on ends of threads in it are noted. If the mutex is not
  // available soon, or the set is full, those of all threads are.
  void expect(Mutex& mutex, MemoryRange range) noexcept;
  // Notes the stacks in a mapping that is watched from now on. If the set is full a stack is not noted, and
  // its end counts as a raw release.
  void note(const RangesLock&, MemoryRange mapping, const HookedCallsUnderWay& calls) noexcept;
  // A thread ends, whose descriptor is there.
  void note_ending(const RangesLock&, uintptr_t descriptor) noexcept;
  // True if libc may have made the change because of a thread's end.
  bool are_changed(const RangesLock&, const MemoryChange& change) const noexcept;
  // The range was unmapped, or is not registered any more.
  void remove(const RangesLock&, MemoryRange range) noexcept;
  // Removes the range for a caller without the mutex. If that is not available soon, all notes are lost.
  void drop(Mutex& mutex, MemoryRange range) noexcept;
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

  void reset_in_child() noexcept;

 private:
  static constexpr size_t kMax = 4096;

  void forget_after_loss() noexcept;
  void add(uintptr_t descriptor) noexcept;

  RangeSet descriptors_;
  RangeSet registered_;                   // may have more than the userfaultfd
  std::atomic<bool> is_all_{false};       // ... or everything
  std::atomic<bool> is_outdated_{false};  // the next holder clears descriptors_
  std::atomic<bool> any_{false};          // never reset
};

}  // namespace hydrant
