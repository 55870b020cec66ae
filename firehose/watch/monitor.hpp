// The process's monitor of released memory: a userfaultfd, a thread that reads its events, and the caches to
// notify. include/hydrant/monitor.h is its interface for other copies of the library, for allocators and for
// the hooks.
//
// docs/pin_cache.md, "Coherence", explains layer by layer why its reports can be relied on. In short:
//  - The reader numbers its readings, so that a thread can wait until the caches have forgotten what was read
//    (reading_sequence.hpp).
//  - Memory can be mapped again before the change that freed it was read. While such a change is under way
//    the kernel returns EAGAIN (userfault.hpp): quiet() waits for that to end, and then for the reader.
//  - The kernel reports a removal before it happens. Removed memory is not cacheable until the call that
//    removed it has returned, which only the hooks can see (removals_under_way.hpp).
//  - Free hits require that every acquisition of memory passes a hook. A change that no hooked call explains
//    proves that some do not: from then on hits are checked (raw_releases.hpp).
//
// Locks: a thread that releases memory sleeps in the kernel until the reader has read, and may do so in a
// signal handler, whatever the interrupted code holds. So the reader waits for no mutex that a handler can
// find held:
//  - The reader calls the caches without a lock, and they work without their own mutex (the client's
//    functions, monitor.h).
//  - The reader tries the mutex of the ranges (a leaf) for a short time, and postpones a change that it
//    cannot enter: DeferredChanges keeps memory from being cached meanwhile, and the change counts as lost
//    (watched_ranges.hpp).
//  - The mutexes of the start and of the unwatcher are held with all signals blocked.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/announced_releases.hpp"
#include "firehose/watch/arena_ranges.hpp"
#include "firehose/watch/change_reader.hpp"
#include "firehose/watch/deferred_changes.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/mapping_watcher.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/pinned_blocks.hpp"
#include "firehose/watch/raw_releases.hpp"
#include "firehose/watch/reader_thread.hpp"
#include "firehose/watch/reading_sequence.hpp"
#include "firehose/watch/release_waits.hpp"
#include "firehose/watch/removals_under_way.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/unwatcher.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watch_state.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <cstdint>

namespace hydrant {

class Monitor {
 public:
  constexpr Monitor() noexcept = default;
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // This copy's monitor, which may not be the one that serves the process (find_monitor()).
  static Monitor& own() noexcept;

  // Starts the reader, once. False if the kernel's reports are not available; reason() then holds the cause.
  // A later call tries again what a shortage has prevented: at once if `now`, else at most every 100 ms.
  bool start(bool now) noexcept;
  const char* reason() const noexcept { return state_.reason(); }

  MonitorClients& clients() noexcept { return clients_; }
  ArenaRanges& arenas() noexcept { return arenas_; }
  PinnedBlocks& pinned_blocks() noexcept { return pinned_blocks_; }
  AnnouncedReleases& announced_releases() noexcept { return announced_releases_; }
  Unwatcher& unwatcher() noexcept { return unwatcher_; }
  ReleaseWaits& waits() noexcept { return waits_; }

  // `flags`: HYDRANT_COVER_ONLY_*.
  uint32_t cover(MemoryRange range, uint32_t flags) noexcept;

  // The calling thread ends, and its stack contains this address (monitor.h). If the mutex is not available
  // soon, the end counts as a raw release.
  void stack_ends(uintptr_t descriptor) noexcept;

  // For the child of a fork(): no reader runs and nothing is watched; arenas and clients stay.
  void reset_in_child() noexcept;

  // Shows the counters, and starts the count of removals at 1, so that 0 can mean none. Called before other
  // threads see the counters.
  void show_counters(hydrant_monitor_t* shown) noexcept;

 private:
  bool map_tables() noexcept;
  void show_blocks() noexcept;
  int start_parts(const char** reason) noexcept;
  int begin_watching(const char** reason) noexcept;

  WatchState state_;
  Userfault userfault_;

  ReadingSequence sequence_;
  // The hooks are set by the start; used by the reader only, except const functions.
  HookedCallsUnderWay hooked_calls_;

  WatchedRanges watched_;
  DeferredChanges deferred_;
  RemovalsUnderWay removals_{watched_, deferred_, hooked_calls_};
  ThreadStacks stacks_;
  RawReleases raw_releases_{userfault_, watched_, stacks_, hooked_calls_, clients_};
  ChangeReader changes_{
      userfault_, sequence_, raw_releases_, {watched_, stacks_, removals_, deferred_}, clients_};
  ReaderThread reader_{userfault_, state_, sequence_, changes_, deferred_, watched_, clients_};
  MappingWatcher mappings_{userfault_, watched_, stacks_, hooked_calls_};

  MonitorClients clients_;
  ArenaRanges arenas_;
  AnnouncedReleases announced_releases_{watched_, stacks_, arenas_, clients_};
  Unwatcher unwatcher_{state_,  userfault_, mappings_, changes_,      watched_,
                       stacks_, removals_,  deferred_, hooked_calls_, announced_releases_,
                       clients_};
  ReleaseWaits waits_{state_,  userfault_, sequence_, hooked_calls_, raw_releases_,
                      stacks_, removals_,  watched_,  unwatcher_,    clients_};
  PinnedBlocks pinned_blocks_;
};

// The monitor that serves the process: the first that the dynamic linker finds, else this copy's.
const hydrant_monitor_t* find_monitor() noexcept;

}  // namespace hydrant
