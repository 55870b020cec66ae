// Waits of threads that acquire memory for the releases of its earlier life.
//
// Invariant: after quiet() and sync() every cache has forgotten what was released in the range before the
// call, unless quiet() returned false. No wait is for a lock, and each has a deadline.
//
// Threads: any, also signal handlers that have interrupted a release of their own thread.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/raw_releases.hpp"
#include "firehose/watch/reading_sequence.hpp"
#include "firehose/watch/removals_under_way.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/unwatcher.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watch_state.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <cstdint>

namespace hydrant {

class ReleaseWaits {
 public:
  constexpr ReleaseWaits(const WatchState& state, const Userfault& userfault,
                         const ReadingSequence& sequence, const HookedCallsUnderWay& calls,
                         const RawReleases& raw_releases, const ThreadStacks& stacks,
                         RemovalsUnderWay& removals, WatchedRanges& watched,
                         const Unwatcher& unwatcher, MonitorClients& clients) noexcept
      : state_(state),
        userfault_(userfault),
        sequence_(sequence),
        calls_(calls),
        raw_releases_(raw_releases),
        stacks_(stacks),
        removals_(removals),
        watched_(watched),
        unwatcher_(unwatcher),
        clients_(clients) {}

  // Waits for releases that may be of this range. False at the deadline.
  bool quiet(MemoryRange range, uint64_t timeout_ns) noexcept;
  // Waits for the reader alone; for all memory if it takes too long.
  void settle() noexcept;
  // quiet() for all memory; if it fails, the caches forget everything.
  void sync() noexcept;
  // For a range that the caller has just got from the kernel. Does not wait for calls that release memory: if
  // one is under way, the caches forget the range.
  void sync(MemoryRange range) noexcept;

 private:
  uint64_t begin_grace_period() noexcept;

  const WatchState& state_;
  const Userfault& userfault_;
  const ReadingSequence& sequence_;
  const HookedCallsUnderWay& calls_;
  const RawReleases& raw_releases_;
  const ThreadStacks& stacks_;
  RemovalsUnderWay& removals_;
  WatchedRanges& watched_;
  const Unwatcher& unwatcher_;
  MonitorClients& clients_;
};

}  // namespace hydrant
