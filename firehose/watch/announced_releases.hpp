// Releases of memory that the program, an allocator or a hook announces, beside those that the kernel
// reports.
//
// Invariant: when a call returns, no range of the call counts as watched that may not be, and each cache has
// forgotten the memory.
//
// Threads: any, also signal handlers: no lock is waited for.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/arena_ranges.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/mutant.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/watched_ranges.hpp"

namespace hydrant {

class AnnouncedReleases {
 public:
  constexpr AnnouncedReleases(WatchedRanges& watched, ThreadStacks& stacks, ArenaRanges& arenas,
                              MonitorClients& clients) noexcept
      : watched_(watched), stacks_(stacks), arenas_(arenas), clients_(clients) {}

  void invalidate(MemoryRange range) noexcept {
    if (range.valid() && !is_mutant(Mutant::kIgnoreArenas)) clients_.forget(range);
  }
  // A hook reports an unmapping that the kernel did not report.
  void replaced(MemoryRange range) noexcept {
    if (!range.valid()) return;
    drop(range);
    clients_.forget_unmapped(range);
  }
  // The kernel's reports on the range may have ended: the program has unregistered it from another
  // userfaultfd. Kernels before 6.17 then end the monitor's registrations, too.
  void not_watched(MemoryRange range) noexcept {
    if (!range.valid()) return;
    drop(range);
    invalidate(range);
  }
  // An allocator drops announced memory.
  void drop_arena(MemoryRange range) noexcept {
    arenas_.remove(range);
    if (range.valid() && !is_mutant(Mutant::kIgnoreArenas)) clients_.forget_unmapped(range);
  }

 private:
  void drop(MemoryRange range) noexcept {
    watched_.drop(range);
    stacks_.drop(watched_.mutex(), range);
  }

  WatchedRanges& watched_;
  ThreadStacks& stacks_;
  ArenaRanges& arenas_;
  MonitorClients& clients_;
};

}  // namespace hydrant
