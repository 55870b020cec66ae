// Which changes of memory the hooks account for: those whose caller has noted them in its thread's record
// (hooks_abi.h). Doubtful cases count as accounted for, such as a thread that is ending, and all that the
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

  // Before changes are read: frees the records of threads that are gone. One whose thread goes later explains
  // what is read then. Cost: a load and a compare; after a thread's end a look at each record.
  void begin_reading() noexcept;
  // Before a change is read: whether its caller may be inside a hooked call. A call that notes watched memory
  // may be the caller. A call that may release memory without a note, as any of malloc's family, may be the
  // caller only if its thread sleeps in the kernel. Cost: a look at each record until one is found (1 us for
  // 500), and 2 to 5 us for each call without a note.
  bool may_have_caller(const RangeSet& watched) noexcept;
  // The same, later: whether one of the calls that the last look has found may be the caller after all. A
  // call that began since cannot be.
  bool may_still_have_caller() noexcept;
  // Whether one of them may have released this range.
  bool explain(MemoryRange range) noexcept;
  // Whether one of them has noted that it releases this range: doubtful cases do not count.
  bool name(MemoryRange range) noexcept;
  // A wait for the calls that were under way when it began: those that may release any of this range.
  struct Wait {
    uint64_t number;  // of the wait: calls that have noted it, or a later one, began later
    MemoryRange range;
    uint32_t but;       // a thread to leave out, or 0
    bool loader;        // also for the loader's calls, which unmap but do not remove
    uint32_t done = 0;  // the calls in the records before this one have returned
  };
  // Whether they have returned. Any thread may ask.
  bool have_returned(Wait& wait) const noexcept;
  // The next thread descriptor (pthread_self()) in this range, of a thread that lives or has ended: memory
  // that libc may use as a stack, or did. *place is where the search begins, at first 0. 0: there is none.
  uintptr_t next_stack(MemoryRange range, uint32_t* place) const noexcept;

 private:
  // Threads whose state is read; beyond that number a thread counts as a possible caller.
  static constexpr uint32_t kMaxCandidates = 16;
  enum class Extent { kNothing, kHeaps, kRange, kAllMemory };
  bool names_any_of(const RangeSet& watched, const hydrant_hooks_thread_t& thread) const noexcept;
  bool is_candidate_sleeping() noexcept;
  Extent extent_of(hydrant_hooks_thread_t& thread, MemoryRange range) const noexcept;
  bool is_heap(MemoryRange range) const noexcept;
  bool reaches_heap(MemoryRange range) const noexcept;

  hydrant_hooks_t* hooks_ = nullptr;
  uint32_t last_found_ = 0;  // where the next look begins
  uint32_t candidates_[kMaxCandidates] = {};
  uint32_t candidate_count_ = 0;
  uint32_t endings_over_ = 0;  // the count when the reading began
};

}  // namespace hydrant
