// What surrounds the real call in a hook: the mark in the thread's record, and the monitor's calls.
//
// Threads: any, also while the program holds locks. Cost with a monitor, on memory never pinned: three loads
// and two stores, all of lines that change seldom or belong to the thread.
#pragma once

#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/thread_records.hpp"

namespace hydrant::hooks {

// The slow halves; all of them keep errno.
void settle(const hydrant_monitor_t* watching);
void sync(const hydrant_monitor_t* watching);
// Calls sync() if any 2-MiB block of the range was ever pinned.
void check_acquired(const hydrant_monitor_t* watching, const uint64_t* blocks, uintptr_t addr,
                    size_t len);

// What a call released that has returned is known to every cache afterwards.
inline void settle_if_needed() {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  if (__atomic_load_n(watching->sequence, __ATOMIC_ACQUIRE) & 1) [[unlikely]]
    settle(watching);
}

// While it lives its thread is inside a call that may release memory; afterwards what was released is known
// to every cache. Of calls inside calls the outermost counts: also of those that a signal handler makes.
class Inside {
 public:
  Inside() : thread_(this_thread()), is_outermost_(load(&thread_->entered) == 0) {
    // The reader of removals sees the mark before it sees what the call does: the kernel's locks are between.
    if (is_outermost_) __atomic_store_n(&thread_->entered, removals(), __ATOMIC_RELEASE);
  }
  ~Inside() {
    if (is_outermost_) __atomic_store_n(&thread_->entered, uint64_t{0}, __ATOMIC_RELEASE);
    settle_if_needed();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  static uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  static uint64_t removals() {
    const hydrant_monitor_t* watching = monitor();
    return watching != nullptr ? __atomic_load_n(watching->removals, __ATOMIC_ACQUIRE) : 1;
  }

  Thread* thread_;
  bool is_outermost_;
};

// Makes a call that may release memory.
template <typename Call>
inline auto releasing(Call&& call) {
  const Inside inside;
  return call();
}

// [addr, addr+len) came from the kernel: it is not returned to the program while a release of the same
// addresses may be unread.
inline void acquired(uintptr_t addr, size_t len) {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  const uint64_t* blocks = __atomic_load_n(&watching->blocks, __ATOMIC_ACQUIRE);
  if (blocks != nullptr) [[unlikely]]
    check_acquired(watching, blocks, addr, len);
}
inline void acquired(const void* addr, size_t len) {
  acquired(reinterpret_cast<uintptr_t>(addr), len);
}

// The same for memory whose place is not known here.
inline void acquired_somewhere() { acquired(uintptr_t{0}, SIZE_MAX); }

// The pages of [addr, addr+len) have gone unreported, even if the call that did it failed half way.
inline void forgotten(const void* addr, size_t len) {
  const hydrant_monitor_t* watching = monitor();
  if (watching != nullptr) watching->invalidate(reinterpret_cast<uintptr_t>(addr), len);
}

// The same if any 2-MiB block of the range was ever pinned.
void forgotten_if_pinned(uintptr_t addr, size_t len);

// Other memory was mapped over [addr, addr+len), and the kernel says nothing of that.
void replaced(const void* addr, size_t len);

// A file may become shorter or get holes; before the real call and after it.
void file_changes();

}  // namespace hydrant::hooks
