// Event totals of a cache: its own events, and those of threads that ended.
//
// Invariant: each event is counted once, here or in the counters of a live thread.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/cache/region/cache_lock.hpp"
#include "firehose/hit/thread_state.hpp"

namespace hydrant {

class CacheTotals {
 public:
  hydrant_stats_t& of(const CacheLock&) noexcept { return totals_; }
  // Adds a thread's counters to `totals`.
  static void add(hydrant_stats_t& totals, const ThreadDomain& state) noexcept {
    const ThreadCounters& c = state.counters;
    totals.hits += state.hits().load(std::memory_order_relaxed);
    totals.refills += c.refills.load(std::memory_order_relaxed);
    totals.misses += c.misses.load(std::memory_order_relaxed);
    totals.not_ready += c.not_ready.load(std::memory_order_relaxed);
    totals.refusals += c.refusals.load(std::memory_order_relaxed);
    totals.waits += c.waits.load(std::memory_order_relaxed);
    totals.slow_releases += c.slow_releases.load(std::memory_order_relaxed);
    totals.checked_hits += c.checked_hits.load(std::memory_order_relaxed);
  }
  void reset(const CacheLock&) noexcept { totals_ = {}; }

 private:
  hydrant_stats_t totals_ = {};
};

}  // namespace hydrant
