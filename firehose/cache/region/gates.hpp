// Opens and shuts the gates of regions under the mutex (gate.hpp has the protocol of one gate).
//
// Invariant: a gate is open only while its region is in state kOpen, no range is pending that was added
// before the opening, and, for a checked region, only its checked gate. RegionInfo::shut says that the
// mutex's holder shut the gate at closed_epoch and did not open it since.
#pragma once

#include "firehose/base/pending_ranges.hpp"
#include "firehose/cache/region/fence_epoch.hpp"
#include "firehose/cache/region/hit_checks.hpp"
#include "firehose/cache/region/region_store.hpp"
#include "firehose/hit/gate.hpp"

namespace hydrant {

class Gates {
 public:
  Gates(RegionStore& store, FenceEpoch& epoch, PendingRanges& pending, HitChecks& checks) noexcept
      : store_(store), epoch_(epoch), pending_ranges_(pending), checks_(checks) {}

  // The gate stays shut if a range was added meanwhile without the mutex: the next holder takes it. A thread
  // that adds a range later shuts the gate again, or has marked it before it is open: that thread sees the
  // slot and the table as they are now.
  void open(const CacheLock& lock, RegionIndex region) noexcept {
    RegionSlot& slot = store_.slot(region);
    RegionInfo& info = store_.infos(lock)[region];
    shut_gate(slot);  // it may be marked
    if (pending_ranges_.added_meanwhile()) return;
    (void)checks_.end_free_hits_of(info);
    if (open_gate(slot, info.range.end(), info.checked)) info.shut = false;
  }

  // True if it was open. Holds may be summed after the next fence. (A gate that was shut without the mutex
  // counts as open: its fence is not known.)
  bool shut(const CacheLock& lock, RegionIndex region) noexcept {
    RegionInfo& info = store_.infos(lock)[region];
    if (info.shut) return false;
    shut_gate(store_.slot(region));
    info.shut = true;
    info.closed_epoch = epoch_.now(lock);
    return true;
  }

  bool is_shut(const CacheLock&, RegionIndex region) const noexcept {
    return gate_is_shut(store_.slot(region));
  }

  // Makes hits on an open region checked if they were free because of complete hooks, and that ended.
  void check_from_now_on(const CacheLock& lock, RegionIndex region) noexcept {
    if (checks_.end_free_hits_of(store_.infos(lock)[region]) && !is_shut(lock, region)) {
      open(lock, region);
    }
  }

 private:
  RegionStore& store_;
  FenceEpoch& epoch_;
  PendingRanges& pending_ranges_;
  HitChecks& checks_;
};

}  // namespace hydrant
