// Slots that new regions may use.
//
// Invariant: a slot leaves the quarantine only after a fence that follows its blanking, and with a sum of
// holds of 0. A thread that posts a hold on it later therefore sees a blank slot, or the bounds of the new
// region.
#pragma once

#include "firehose/cache/region/fence_epoch.hpp"
#include "firehose/cache/region/hold_counts.hpp"
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {

class FreeSlots {
 public:
  FreeSlots(RegionStore& store, HoldCounts& holds, FenceEpoch& epoch) noexcept
      : store_(store), holds_(holds), epoch_(epoch) {}

  // A slot for a new region; kNoRegion if all are in use.
  RegionIndex allocate(const CacheLock&) noexcept;
  // Requires: the slot is blank, and its region is in no queue, table or policy.
  void quarantine(const CacheLock&, RegionIndex region) noexcept;
  void clear(const CacheLock&) noexcept;

 private:
  RegionIndex take_oldest(const CacheLock&) noexcept;
  // Examines the slots that have been in quarantine longest; returns their number.
  size_t end_quarantine(const CacheLock&) noexcept;

  RegionStore& store_;
  HoldCounts& holds_;
  FenceEpoch& epoch_;
  RegionQueue quarantine_;
  RegionQueue reusable_;  // fenced, no hold
};

}  // namespace hydrant
