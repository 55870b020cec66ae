// Ends watching: unregisters memory that no cache uses any more from the userfaultfd. The program may then
// register it with another; the kernel allows one for a mapping.
//
// Invariant: a range that is unregistered was watched, no cache had it pinned, and no removal in it was under
// way; no watched range lies in it afterwards. Three things must not come between the decision and the
// kernel's call:
//  - A miss that registers the range again: the watcher of mappings holds its mutex as this does.
//  - A miss that finds the range watched: the set forgets it first. A miss that came before has its region
//    listed as pending, and the range counts as pinned.
//  - Another owner of the addresses, which may have registered them: munmap() of watched memory returns when
//    the reader has read, and the reader does not read meanwhile (the mutex of ChangeReader). Hooks that hand
//    out the addresses earlier wait beside it (is_at_work()).
//
// Threads: any, also a signal handler that has interrupted a miss. Signals are blocked, since the reader
// waits for the mutex of ChangeReader. Mutexes that an interrupted thread may hold are only tried.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/announced_releases.hpp"
#include "firehose/watch/change_reader.hpp"
#include "firehose/watch/deferred_changes.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/mapping_watcher.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/removals_under_way.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watch_state.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class Unwatcher {
 public:
  constexpr Unwatcher(const WatchState& state, const Userfault& userfault, MappingWatcher& mappings,
                      ChangeReader& changes, WatchedRanges& watched, ThreadStacks& stacks,
                      RemovalsUnderWay& removals, const DeferredChanges& deferred,
                      const HookedCallsUnderWay& calls, AnnouncedReleases& releases,
                      MonitorClients& clients) noexcept
      : state_(state),
        userfault_(userfault),
        mappings_(mappings),
        changes_(changes),
        watched_(watched),
        stacks_(stacks),
        removals_(removals),
        deferred_(deferred),
        calls_(calls),
        releases_(releases),
        clients_(clients) {}

  // Stops watching memory that no cache uses any more.
  void unwatch_unused() noexcept;
  // The same for memory that the program registers with another userfaultfd; caches forget it first. False if
  // a part of it is still watched at the deadline.
  bool unwatch_range(MemoryRange range, uint64_t timeout_ns) noexcept;
  // The same without a request, so only for small mappings; does nothing if complete hooks make room on
  // demand.
  void unwatch_idle() noexcept;
  // True while ranges that were watched before may be unregistered.
  bool is_at_work() const noexcept { return unwatching_.load(std::memory_order_seq_cst); }

  void reset_in_child() noexcept { unwatching_.store(false, std::memory_order_relaxed); }

 private:
  struct Request {
    MemoryRange range;
    size_t max_bytes = SIZE_MAX;  // larger ranges stay watched
    uint64_t deadline_ns = UINT64_MAX;
    uint64_t patience_ns = 0;  // progress moves the deadline so far away, to latest_ns at most
    uint64_t latest_ns = 0;

    void note_progress() noexcept {
      if (patience_ns != 0)
        deadline_ns = std::max(deadline_ns, std::min(latest_ns, now_ns() + patience_ns));
    }
  };

  bool next(const RangesLock& lock, uintptr_t* from, uintptr_t end, MemoryRange* range) noexcept;
  bool unwatch_some(uintptr_t* from, Request& what) noexcept;
  bool unwatch_some_locked(uintptr_t* from, Request& what) noexcept
      HYDRANT_REQUIRES(mappings_.mutex());
  bool unwatch_one(MemoryRange range, Request& what) noexcept HYDRANT_REQUIRES(mappings_.mutex())
      HYDRANT_REQUIRES(changes_.mutex());
  bool unwatch_all(Request& what) noexcept;
  bool unregister(MemoryRange range) noexcept;
  uint64_t pinned_parts(MemoryRange range) noexcept;
  bool watches_any(MemoryRange range) noexcept;

  const WatchState& state_;
  const Userfault& userfault_;
  MappingWatcher& mappings_;
  ChangeReader& changes_;
  WatchedRanges& watched_;
  ThreadStacks& stacks_;
  RemovalsUnderWay& removals_;
  const DeferredChanges& deferred_;
  const HookedCallsUnderWay& calls_;
  AnnouncedReleases& releases_;
  MonitorClients& clients_;
  std::atomic<bool> unwatching_{false};
};

}  // namespace hydrant
