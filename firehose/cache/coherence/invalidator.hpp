// Forgets memory that goes away: what the monitor tells, with the mutex or without it.
//
// The functions for the monitor run in its reader, under an allocator's locks, or in a signal handler: they
// shut regions and leave them dead, without a fence, a deregistration or an allocation; the next poll or
// slow call of the client drains them. A look into the cache that follows in the order of events finds a
// shut gate.
//
// The holder of the mutex may be the thread that a signal handler has interrupted, and the handler may
// release memory: its call returns when the monitor's reader has read the report, and the reader tells this
// domain. So a teller waits for no holder: it leaves the range for the next one (pending_ranges.hpp), and
// shuts the gates that hits come through. docs/pin_cache.md, "Told without the mutex", argues why that is
// enough.
//
// Invariant: when forget() has returned, no hit finds a region that overlapped the range before, and no
// registration that was under way there is published.
#pragma once

#include "firehose/base/pending_ranges.hpp"
#include "firehose/base/registrar.hpp"
#include "firehose/cache/budget/retirement.hpp"
#include "firehose/cache/coherence/invalidation_log.hpp"
#include "firehose/cache/plan/planner.hpp"
#include "firehose/cache/region/begun_pins.hpp"
#include "firehose/cache/region/pending_regions.hpp"

#include <atomic>

namespace hydrant {

class Invalidator {
 public:
  // The length of a range that means everything: more than any real one.
  static constexpr size_t kEverything = size_t{1} << 62;

  struct Parts {
    Mutex& mu;
    Registrar& registrar;
    RegionStore& store;
    RegionTables& tables;
    PendingRegions& pending;
    const BegunPins& begun;
    Retirement& retirement;
    Planner& planner;
    CacheTotals& totals;
    PendingRanges& pending_ranges;
  };
  explicit Invalidator(const Parts& parts) noexcept : parts_(parts) {}

  // --- for the monitor ---
  void forget(MemoryRange range) noexcept;
  // The same; and what is registered there has lost its memory.
  void forget_unmapped(MemoryRange range) noexcept {
    // First: what forget() closes may be unpinned at once.
    if (range.len < kEverything) parts_.registrar.unmapped(range);
    forget(range);
  }
  void forget_vouched() noexcept;
  // True if some region overlaps the range, also while it is being registered or unpinned; maybe also
  // otherwise.
  bool any_pinned(MemoryRange range) noexcept;
  // Shuts each gate that may be hit without a check, and opens no gate so again that rests on the hooks:
  // they do not see all. Takes no lock.
  void end_free_hits() noexcept;

  // --- for the mutex's holder ---
  // Forgets what was told without the mutex. Every phase begins with it.
  void settle_pending(const CacheLock& lock) noexcept {
    if (parts_.pending_ranges.any()) forget_pending(lock);
  }
  bool has_pending() const noexcept { return parts_.pending_ranges.any(); }
  // Marks what a domain has learnt about the range, beside its regions, as out of date.
  void note_forgotten(const CacheLock&, MemoryRange range) noexcept;
  // Lists a range whose memory goes away, if something is or was registered there: peers may have it.
  bool log_invalidation(const CacheLock&, MemoryRange range, bool found) noexcept;
  // Ranges of registered memory that went away.
  const InvalidationLog& invalidation_log() const noexcept { return invalidation_log_; }

  // The registrar has lost so many registrations' ends: unheld regions keep what it cannot give back one by
  // one.
  void handle_losses(uint64_t losses) noexcept {
    if (losses != losses_seen_.load(std::memory_order_relaxed)) forget_all_after_loss(losses);
  }

 private:
  template <class Work>
  bool with_mutex(const Work& work) noexcept;
  void forget_pending(const CacheLock&) noexcept;
  void forget_all(const CacheLock&, bool prepinned_too) noexcept;
  void forget_all_vouched(const CacheLock&) noexcept;
  bool forget_some(const CacheLock&, MemoryRange range, bool* listed) noexcept;
  template <class Closes>
  void close_where(const CacheLock&, const Closes& closes) noexcept;
  void forget_all_after_loss(uint64_t losses) noexcept;
  void defer(MemoryRange range) noexcept;
  void wake_upkeep() const noexcept;
  void mark_without_lock(MemoryRange range) noexcept;

  const Parts parts_;
  InvalidationLog invalidation_log_;
  std::atomic<uint64_t> losses_seen_{0};
};

}  // namespace hydrant
