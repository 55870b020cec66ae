// Forgets released memory that the monitor reports, with the mutex or without it.
//
// The functions for the monitor run in its reader, under an allocator's locks, or in a signal handler. They
// shut regions and leave them dead, without a fence, a deregistration or an allocation; the next poll or slow
// call of the client drains them. A lookup that follows in the order of events finds a shut gate.
//
// The holder of the mutex may be the thread that a signal handler has interrupted, and the handler may
// release memory. Its call returns when the monitor's reader has read the report and notified this domain. So
// the notifier waits for no holder: it leaves the range to the next one (pending_ranges.hpp), and shuts the
// gates that hits come through. docs/pin_cache.md, "Invalidated without the mutex", argues why that suffices.
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
  // The same for unmapped memory, which is also reported to the registrar.
  void forget_unmapped(MemoryRange range) noexcept {
    // Before forget(): the regions that it closes may be unpinned at once.
    if (range.len < kEverything) parts_.registrar.unmapped(range);
    forget(range);
  }
  void forget_vouched() noexcept;
  // True if some region overlaps the range, also while it is being registered or unpinned, or if some of it
  // was refused; true in doubt.
  bool any_pinned(MemoryRange range) noexcept;
  // Shuts each gate that may be hit without a check. A gate that depends on complete hooks is not opened for
  // free hits again. Takes no lock.
  void end_free_hits() noexcept;

  // --- for the mutex's holder ---
  // Forgets the ranges that were added without the mutex. Every phase begins with it.
  void settle_pending(const CacheLock& lock) noexcept {
    if (parts_.pending_ranges.any()) forget_pending(lock);
  }
  bool has_pending() const noexcept { return parts_.pending_ranges.any(); }
  // Drops what a domain has learnt about the range beside its regions.
  void note_forgotten(const CacheLock&, MemoryRange range) noexcept;
  // Lists a released range if a region is or was registered there: peers may use it.
  bool log_invalidation(const CacheLock&, MemoryRange range, bool found) noexcept;
  // Ranges of registered memory that were released.
  const InvalidationLog& invalidation_log() const noexcept { return invalidation_log_; }

  // `losses`: see Registrar::losses(). A new loss makes the cache forget everything, because the registrar
  // cannot unpin the regions one by one.
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
  // Closes a region whose memory has been released, and leaves it dead.
  void close_released(const CacheLock&, RegionIndex region) noexcept;
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
