// Decides which changes of memory the hooks account for: those that a thread's record (hooks_abi.h) notes.
// Doubtful cases count as accounted for, such as the changes of a thread that is ending, and all that the
// loader does.
//
// Threads: the monitor's reader only, except the const functions. No lock, no allocation.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/range_set.hpp"
#include "firehose/watch/hooks_abi.h"

#include <cstdint>

namespace hydrant {

class HookedCallsUnderWay {
 public:
  constexpr HookedCallsUnderWay() noexcept = default;
  void set_hooks(hydrant_hooks_t* hooks) noexcept { hooks_ = hooks; }
  bool have_hooks() const noexcept { return hooks_ != nullptr; }
  // True if the hooks see every call that releases memory, and their records prove something.
  bool are_complete() const noexcept {
    return hooks_ != nullptr && hooks_->families == HYDRANT_HOOKS_ALL &&
           __atomic_load_n(&hooks_->overflowed, __ATOMIC_ACQUIRE) == 0;
  }
  // True for memory of libc's malloc that libc maps and unmaps without a hook, and that cannot be marked.
  // Requires: have_hooks().
  bool is_in_libc_heap(MemoryRange range) const noexcept;

  // Called before changes are read: frees the records of threads that have exited. If another record is freed
  // or reused after this, explain() returns true, because its thread may be the caller. Cost: a load and a
  // compare; after a thread's end a look at each record.
  void begin_reading() noexcept;
  // Called before a change is read: true if its caller may be inside a hooked call. A call that notes watched
  // memory may be the caller. A call that may release memory without a note, such as free(), may be the
  // caller only while its thread sleeps in the kernel. Cost: a look at each record until a caller is found
  // (1 us for 500), and 2 to 5 us for each call without a note.
  bool may_have_caller(const RangeSet& watched) noexcept;
  // Repeats the check for the calls without a note that may_have_caller() found. A call that began since then
  // cannot be the caller.
  bool may_still_have_caller() noexcept;
  // True if a hooked call under way may have released this range.
  bool explain(MemoryRange range) noexcept;
  // True if a hooked call under way has noted that it releases this range. Doubtful cases do not count.
  bool name(MemoryRange range) noexcept;
  // A wait for the hooked calls that were under way when it began and may release a part of `range`.
  struct Wait {
    // The wait's number: calls with this number or a higher one in their records began later.
    uint64_t number;
    MemoryRange range;
    uint32_t but;       // tid of a thread to leave out, or 0
    bool loader;        // also for the loader's calls, which unmap but do not remove
    uint32_t done = 0;  // the calls of all records below this index have returned
  };
  // True once those calls have returned. Threads: any.
  bool have_returned(Wait& wait) const noexcept;
  // Returns the next thread descriptor (pthread_self()) in this range, of a running or an ended thread: libc
  // uses memory there as a stack, or did. *position: where to search from; 0 at first. Returns 0 at the end.
  uintptr_t next_stack(MemoryRange range, uint32_t* position) const noexcept;

 private:
  // At most this many threads' states are read from /proc; a further thread counts as a possible caller.
  static constexpr uint32_t kMaxCandidates = 16;
  enum class Extent { kNothing, kHeaps, kRange, kAllMemory };
  bool names_any_of(const RangeSet& watched, const hydrant_hooks_thread_t& thread) const noexcept;
  bool is_candidate_sleeping() noexcept;
  Extent extent_of(hydrant_hooks_thread_t& thread, MemoryRange range) const noexcept;
  bool is_heap(MemoryRange range) const noexcept;
  bool reaches_heap(MemoryRange range) const noexcept;

  hydrant_hooks_t* hooks_ = nullptr;
  uint32_t last_found_ = 0;  // index of the record where the next search begins
  uint32_t candidates_[kMaxCandidates] = {};
  uint32_t candidate_count_ = 0;
  uint32_t endings_over_ = 0;  // hooks_->endings_over when the reading began
};

}  // namespace hydrant
