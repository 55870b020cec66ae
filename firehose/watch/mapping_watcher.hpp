// Registers the mappings of memory that is to be cached with the userfaultfd.
//
// Invariant: a range enters the watched ranges only if it was one mapping, of a kind that the kernel reports
// on, before and after its registration, and no change was entered between. The library's own tables are
// never registered.
//
// Threads: any. The mutex guards registering and unregistering. It comes before the reader's mutex and that
// of the watched ranges; the reader never wants it, and threads that may be in a signal handler only try it.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/mapping_query.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <cstdint>

namespace hydrant {

class MappingWatcher {
 public:
  constexpr MappingWatcher(const Userfault& userfault, WatchedRanges& watched, ThreadStacks& stacks,
                           const HookedCallsUnderWay& calls) noexcept
      : userfault_(userfault), watched_(watched), stacks_(stacks), calls_(calls) {}

  // False without /proc, with errno.
  bool open() noexcept { return mappings_.open(); }
  void close() noexcept { mappings_.close(); }
  // The memory of find_static_memory(). Called before other threads watch memory.
  void set_statics(MemoryRange statics) noexcept { statics_ = statics; }

  Mutex& mutex() noexcept HYDRANT_TSA(lock_returned(watching_mu_)) { return watching_mu_; }
  // Has the kernel report on the range, which may span mappings. False: a part cannot be watched, or keeps
  // changing.
  bool watch(MemoryRange range) noexcept HYDRANT_EXCLUDES(watching_mu_);
  // Enters registered memory that the watched ranges may lack, where reports could not be entered
  // (WatchedRanges::note_lost()), or after a miss during AnnouncedReleases::not_watched(). Nothing else would
  // unwatch it. The kernel refuses the mappings of another userfaultfd and registers the others, or has done
  // so before.
  void watch_again(MemoryRange range, uint64_t deadline_ns) noexcept HYDRANT_EXCLUDES(watching_mu_);

  // Closes the parent's descriptor.
  void reset_in_child() noexcept;

 private:
  bool register_mapping(uintptr_t addr, MemoryRange within, Mapping* found, bool* needed) noexcept
      HYDRANT_REQUIRES(watching_mu_);
  bool enter(const RangesLock& lock, MemoryRange range, uint64_t changes_before) noexcept;
  bool watch_mapping(uintptr_t addr, uintptr_t* end) noexcept HYDRANT_EXCLUDES(watching_mu_);
  bool rewatch_mapping_locked(MemoryRange within, uintptr_t* at) noexcept
      HYDRANT_REQUIRES(watching_mu_);

  const Userfault& userfault_;
  WatchedRanges& watched_;
  ThreadStacks& stacks_;
  const HookedCallsUnderWay& calls_;
  MappingQuery mappings_;
  MemoryRange statics_{};
  Mutex watching_mu_;
};

}  // namespace hydrant
