// The way of a region out of the cache: open -> dead -> retiring, or open -> retiring.
//
// Invariants: a region is dead from the moment that it left its table with its gate shut for good, until a
// fence and a sum of 0 prove that it is not held. A retiring region is blank, in no table and no policy,
// and belongs to the thread that unpins it.
#pragma once

#include "firehose/cache/budget/victim_policy.hpp"
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
    VictimPolicy& policy;
  };
  explicit Retirement(const Parts& parts) noexcept : parts_(parts) {}

  const DeadRegions& dead(const CacheLock&) const noexcept { return dead_; }
  // Without the mutex: hints.
  bool looks_idle() const noexcept { return dead_.looks_empty(); }
  bool may_have_released() const noexcept { return !dead_.looks_unreleased(); }

  // Removes the region from the policy.
  void unlist(const CacheLock&, RegionIndex region) noexcept;
  // Removes the region from its table and shuts it, for good. The policy may still name it until it is
  // retired.
  void close(const CacheLock&, RegionIndex region) noexcept;
  void add_dead(const CacheLock&, RegionIndex region) noexcept;
  // Closes a region whose memory has been released, and leaves it dead.
  void close_released(const CacheLock&, RegionIndex region) noexcept;
  void remove_dead(const CacheLock&, RegionIndex region) noexcept;

  // Requires: shut before the last fence, not held since; in no table and no queue.
  void retire(const CacheLock&, RegionIndex region, RegionQueue* retired) noexcept;
  // The same for a region that was never open, or at the domain's end.
  void begin_unpin(const CacheLock&, RegionIndex region, RegionQueue* retired) noexcept;
  // Ends the unpinning of a region of such a queue, unless the child of a fork has forgotten it.
  void end_unpin(const CacheLock&, RegionIndex region) noexcept;
  // Waits until some region was unpinned; false at the deadline.
  bool wait_for_unpin(const CacheLock& lock, uint64_t deadline_ns) noexcept;
  // True if part of the range is being unpinned. Cost: linear in the regions that are being unpinned.
  bool is_retiring(const CacheLock&, MemoryRange range) const noexcept;
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
  void reset_in_child(const CacheLock&) noexcept {
    dead_.clear();
    retiring_ = kNoRegion;
    waiting_ = 0;
    unpinned_.reset_in_child();
  }

 private:
  const Parts parts_;
  DeadRegions dead_;
  RegionIndex retiring_ = kNoRegion;  // the first of the regions in that state
  uint32_t waiting_ = 0;              // threads in wait_for_unpin()
  CondVar unpinned_;
};

}  // namespace hydrant
