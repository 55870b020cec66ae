// The work around the real call in a hook: the mark in the thread's record, and the calls to the monitor.
//
// Threads: any, also while the program holds locks. Cost with a monitor, on memory never pinned: three loads
// and two stores, all of lines that change seldom or belong to the thread.
#pragma once

#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/thread_records.hpp"

namespace hydrant::hooks {

// The slow halves; all of them keep errno.
void settle(const hydrant_monitor_t* watching);
void sync(const hydrant_monitor_t* watching, uintptr_t addr, size_t len);
// Calls the monitor if any 2-MiB block of the range was ever pinned.
void check_acquired(const hydrant_monitor_t* watching, const uint64_t* blocks, uintptr_t addr,
                    size_t len);

// Returns when every cache has forgotten what finished calls have released.
inline void settle_if_needed() {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  if (__atomic_load_n(watching->sequence, __ATOMIC_ACQUIRE) & 1) [[unlikely]]
    settle(watching);
}

// The memory that a call may release beside libc's own heaps.
struct Released {
  uintptr_t addr = 0;
  size_t len = 0;
};
inline constexpr Released kAllMemory{0, HYDRANT_HOOKS_ANYTHING};
inline Released released(const void* addr, size_t len) {
  return {reinterpret_cast<uintptr_t>(addr), len};
}

// While it exists, its thread counts as inside a call that may release memory. Its destructor returns when
// every cache has forgotten what was released. The outermost of nested calls sets the mark, also for calls of
// a signal handler. Each call notes what it may release.
class HookedCallScope {
 public:
  explicit HookedCallScope(Released may)
      : thread_(this_thread()), is_outermost_(load(&thread_->entered) == 0), noted_(may.len != 0) {
    // The reader of changes sees mark and note before it sees what the call does: the kernel's locks order
    // them. The mark comes first: a signal handler that runs before the mark is set ends with the note
    // erased, and one that runs after it notes its own calls as inner ones.
    if (is_outermost_) {
      __atomic_store_n(&thread_->entered, removals(), __ATOMIC_RELEASE);
      __atomic_signal_fence(__ATOMIC_SEQ_CST);
      if (noted_) note(&thread_->addr, may);
    } else if (noted_) {
      // The length is "anything" in between: a handler that interrupts this leaves the address alone, and no
      // other thread combines the words of two notes.
      outer_len_ = load(&thread_->inner_len);
      __atomic_store_n(&thread_->inner_len, HYDRANT_HOOKS_ANYTHING, __ATOMIC_RELEASE);
      __atomic_signal_fence(__ATOMIC_SEQ_CST);
      if (outer_len_ == 0) note(&thread_->inner_addr, may);
    }
  }
  // The mark is cleared after settling: the reader finds the caller's note until it has applied the changes.
  ~HookedCallScope() {
    settle_if_needed();
    if (is_outermost_) {
      __atomic_store_n(&thread_->entered, uint64_t{0}, __ATOMIC_RELEASE);
      if (noted_) store(&thread_->len, 0);
    } else if (noted_) {
      __atomic_store_n(&thread_->inner_len, outer_len_, __ATOMIC_RELEASE);
    }
  }
  HookedCallScope(const HookedCallScope&) = delete;
  HookedCallScope& operator=(const HookedCallScope&) = delete;

 private:
  static uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  // NOLINTNEXTLINE(readability-non-const-parameter): written by __atomic_store_n()
  static void store(uint64_t* word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
  }
  // Address and length are adjacent words.
  static void note(uint64_t* at, Released may) {
    store(at, may.addr);
    __atomic_store_n(at + 1, may.len, __ATOMIC_RELEASE);
  }
  static uint64_t removals() {
    const hydrant_monitor_t* watching = monitor();
    return watching != nullptr ? __atomic_load_n(watching->removals, __ATOMIC_ACQUIRE) : 1;
  }

  Thread* thread_;
  bool is_outermost_;
  bool noted_;
  uint64_t outer_len_ = 0;
};

// Makes a call that may release memory of libc's own heaps, and `may`.
template <typename Call>
inline auto releasing(Released may, Call&& call) {
  const HookedCallScope inside(may);
  return call();
}
template <typename Call>
inline auto releasing(Call&& call) {
  return releasing(Released{}, call);
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

// The same for memory at an unknown address.
inline void acquired_somewhere() { acquired(uintptr_t{0}, SIZE_MAX); }

// The pages of [addr, addr+len) were dropped without a report; also called if the call failed half way.
inline void forgotten(const void* addr, size_t len) {
  const hydrant_monitor_t* watching = monitor();
  if (watching != nullptr) watching->invalidate(reinterpret_cast<uintptr_t>(addr), len);
}

// The same if any 2-MiB block of the range was ever pinned.
void forget_if_pinned(uintptr_t addr, size_t len);

// Other memory was mapped over [addr, addr+len), which the kernel does not report.
void replaced(const void* addr, size_t len);

// A file may shrink or get holes. Called before the real call and after it.
void file_changes();

}  // namespace hydrant::hooks
