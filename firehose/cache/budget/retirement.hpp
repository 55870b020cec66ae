// The way of a region out of the cache: open -> dead -> retiring, or open -> retiring.
//
// Invariants: a region is dead from the moment that it left its table with its gate shut for good, until a
// fence and a sum of 0 prove that it is not held. A retiring region is blank, in no table and no policy,
// and belongs to the thread that unpins it.
#pragma once

#include "firehose/cache/budget/unpins_under_way.hpp"
#include "firehose/cache/budget/victim_list.hpp"
#include "firehose/cache/index/region_tables.hpp"
#include "firehose/cache/region/extensions.hpp"
#include "firehose/cache/region/fence_epoch.hpp"
#include "firehose/cache/region/gates.hpp"
#include "firehose/cache/region/hold_counts.hpp"

namespace hydrant {

class Retirement {
 public:
  struct Parts {
    RegionStore& store;
    HoldCounts& holds;
    FenceEpoch& epoch;
    Gates& gates;
    RegionTables& tables;
    Extensions& extensions;
    VictimList& victims;
    UnpinsUnderWay& unpins;
  };
  explicit Retirement(const Parts& parts) noexcept : parts_(parts) {}

  const DeadRegions& dead(const CacheLock&) const noexcept { return dead_; }
  // Without the mutex: hints.
  bool looks_idle() const noexcept { return dead_.looks_empty(); }
  bool may_have_released() const noexcept { return !dead_.looks_unreleased(); }

  // Removes the region from its table and shuts it, for good. The policy may still name it until it is
  // retired.
  void close(const CacheLock&, RegionIndex region) noexcept;
  void add_dead(const CacheLock&, RegionIndex region) noexcept;
  void remove_dead(const CacheLock&, RegionIndex region) noexcept;

  // Requires: shut before the last fence, not held since; in no table and no queue.
  void retire(const CacheLock&, RegionIndex region, RegionQueue* retired) noexcept;
  // True if part of the range is dead or being unpinned. Cost: linear in these regions.
  bool has_retiring(const CacheLock&, MemoryRange range) const noexcept;
  // Retires the regions of `list` that are not held, after one fence; the others become dead.
  void settle(const CacheLock&, RegionQueue* list, RegionQueue* retired) noexcept;
  // The same for so many dead regions.
  void drain(const CacheLock&, size_t most, RegionQueue* retired) noexcept;
  // The same for all of the range.
  void drain(const CacheLock&, MemoryRange range, RegionQueue* retired) noexcept;
  // Moves all dead regions of the range to `list`, for settle().
  void take_dead(const CacheLock& lock, MemoryRange range, RegionQueue* list) noexcept {
    if (!dead_.empty()) dead_.take(parts_.store.infos(lock), range, list);
  }
  // The same for regions that have not been examined yet, in one bounded batch. True if regions of released
  // memory remain.
  bool drain_released(const CacheLock&, RegionQueue* retired) noexcept;
  // Calls drain() if memory of a dead region was released, or if enough dead regions or bytes have
  // accumulated for the cost of a fence. Every miss calls it.
  void drain_many(const CacheLock&, uint64_t budget_bytes, RegionQueue* retired) noexcept;
  void reset_in_child(const CacheLock&) noexcept { dead_.clear(); }

 private:
  const Parts parts_;
  DeadRegions dead_;
};

}  // namespace hydrant
