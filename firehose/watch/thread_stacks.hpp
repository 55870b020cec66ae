// Thread stacks in watched memory. libc unmaps stacks inside calls without hooks, such as pthread_join(), and
// empties them when their threads end.
//
// Invariant: a noted address held a thread's descriptor when its mapping began to be watched, or when that
// thread ended in watched memory, and no unmapping of it has been entered since. any() is true once an
// address was noted.
//
// Threads: any, with the mutex of the watched ranges; any() without.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/range_set.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/ranges_lock.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant {

class ThreadStacks {
 public:
  constexpr ThreadStacks() noexcept = default;

  [[nodiscard]] bool map(const RangesLock&) noexcept { return descriptors_.map(kMax); }
  // Notes the stacks in a mapping that is watched from now on. If the set is full a stack is not noted, and
  // its end counts as a raw release.
  void note(const RangesLock&, MemoryRange mapping, const HookedCallsUnderWay& calls) noexcept;
  // Notes the stack of a thread that ends now, which is in watched memory.
  void note_ending(const RangesLock&, uintptr_t descriptor) noexcept;
  // True if libc may have made the change because of a thread's end.
  bool are_changed(const RangesLock&, const MemoryChange& change) const noexcept;
  // The range was unmapped.
  void remove(const RangesLock&, MemoryRange range) noexcept {
    if (!descriptors_.remove(range)) descriptors_.clear();
  }
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

  void reset_in_child() noexcept { descriptors_.clear(); }

 private:
  static constexpr size_t kMax = 4096;

  RangeSet descriptors_;
  std::atomic<bool> any_{false};  // never reset
};

}  // namespace hydrant
