// Detects raw releases: memory that is released without a hook. Hits are free of checks until the first raw
// release is seen.
//
// Invariant: hits are free only while every change that was read could have a hooked call, or the end of a
// thread, as its cause. Checks, once they have begun, never end.
//
// A hooked call notes in its thread's record what it may release, before the kernel can report it. The caller
// of a change sleeps in the kernel until the change is read. So a change that is pending while no thread is
// inside a hooked call is raw. Free hits then end before the change is read: its caller, the first thread
// that can use the addresses again, finds nothing there that was cached before. If another thread may be
// releasing memory at the same time, the change must be read to find its caller. Either that thread's note
// covers the change, or free hits end then, a moment late.
//
// Threads: the reader. Whether hits are checked, any.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/thread_stacks.hpp"
#include "firehose/watch/userfault.hpp"
#include "firehose/watch/watched_ranges.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class RawReleases {
 public:
  constexpr RawReleases(const Userfault& userfault, WatchedRanges& watched,
                        const ThreadStacks& stacks, HookedCallsUnderWay& calls,
                        MonitorClients& clients) noexcept
      : userfault_(userfault),
        watched_(watched),
        stacks_(stacks),
        calls_(calls),
        clients_(clients) {}

  bool are_hits_checked() const noexcept { return checked_.load(std::memory_order_relaxed) != 0; }
  // False if hits are checked anyway, because the hooks are incomplete or have too few records for all
  // threads.
  bool are_looked_for() const noexcept { return !are_hits_checked() && calls_.are_complete(); }
  // For the start of the monitor, before a cache may have free hits.
  void check_hits_from_the_start() noexcept { checked_.store(1, std::memory_order_seq_cst); }

  // The result of begin_reading() for find().
  struct Look {
    bool looks;
    bool caller_found;
  };
  // Called before changes are read. Ends free hits if none of the pending changes can have a caller.
  Look begin_reading() noexcept;
  // The first raw change among those just read, or null; ends free hits if there is one. Their callers may be
  // running again.
  const MemoryChange* find(const Look& look, const MemoryChange* changes, size_t n) noexcept;
  // True if the hooks will show when the caller of this removal, which was just read, has returned.
  bool knows_caller(const MemoryChange& removal) noexcept;
  // Logs the first raw release.
  static void report(const MemoryChange& change) noexcept;

  void show(hydrant_monitor_t* shown) const noexcept {
    shown->checked = reinterpret_cast<const uint32_t*>(&checked_);
    shown->raw_changes = reinterpret_cast<const uint64_t*>(&seen_);
  }

 private:
  bool may_be_hooked() noexcept;
  bool is_explained(const MemoryChange& change) noexcept;
  void check_all_hits() noexcept;

  const Userfault& userfault_;
  WatchedRanges& watched_;
  const ThreadStacks& stacks_;
  HookedCallsUnderWay& calls_;
  MonitorClients& clients_;
  // Nonzero: each hit on memory that the kernel watches is checked. Never reset.
  std::atomic<uint32_t> checked_{0};
  std::atomic<uint64_t> seen_{0};  // raw releases, while hits were free
};

}  // namespace hydrant
