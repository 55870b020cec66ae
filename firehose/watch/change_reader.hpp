// Reads the kernel's reports, enters them in the monitor's tables and notifies the caches. Never allocates,
// never deregisters, and never waits for a thread that allocates, frees or registers: a thread that releases
// memory sleeps in the kernel until its report is read, with whatever locks an allocator holds.
//
// Invariant: when a reading ends, each change that it got is in the tables, or is deferred and lost for the
// watched ranges, and each cache has forgotten its memory since. The sequence is odd from before the reading
// until then.
//
// Threads: the reader alone. Another thread that holds mutex(), with signals blocked, keeps it from reading;
// it may only try other mutexes meanwhile.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/watch/deferred_changes.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/raw_releases.hpp"
#include "firehose/watch/reading_sequence.hpp"
#include "firehose/watch/removals_under_way.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watched_ranges.hpp"

namespace hydrant {

class ChangeReader {
 public:
  // The tables that changes are entered in.
  struct Tables {
    WatchedRanges& watched;
    ThreadStacks& stacks;
    RemovalsUnderWay& removals;
    DeferredChanges& deferred;
  };

  constexpr ChangeReader(const Userfault& userfault, ReadingSequence& sequence,
                         RawReleases& raw_releases, const Tables& tables,
                         MonitorClients& clients) noexcept
      : userfault_(userfault),
        sequence_(sequence),
        raw_releases_(raw_releases),
        tables_(tables),
        clients_(clients) {}

  Mutex& mutex() noexcept HYDRANT_TSA(lock_returned(reading_mu_)) { return reading_mu_; }
  // Reads what is pending, up to Userfault::kAtOnce changes. 0, or an errno if nothing was read.
  int read() noexcept HYDRANT_EXCLUDES(reading_mu_);
  // Enters the deferred changes, in the order in which they were reported. False if the mutex is held.
  bool enter_deferred(bool impatient) noexcept;

  void reset_in_child() noexcept { reading_mu_.reset_in_child(); }

 private:
  void apply(const MemoryChange& change) noexcept;
  void enter(const RangesLock& lock, const MemoryChange& change, uint64_t removal) noexcept;

  const Userfault& userfault_;
  ReadingSequence& sequence_;
  RawReleases& raw_releases_;
  const Tables tables_;
  MonitorClients& clients_;
  Mutex reading_mu_;
};

}  // namespace hydrant
