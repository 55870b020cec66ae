// Chooses victims: open regions that are not held, the least used first in the policy's judgement.
//
// Invariant: evict() retires regions worth at least the shortage, or none at all; a region that it examined
// and left is open again. The policy lists exactly the open regions that are not the client's own, and some
// that died.
#pragma once

#include "firehose/cache/budget/budget.hpp"
#include "firehose/cache/budget/retirement.hpp"
#include "firehose/cache/budget/working_set.hpp"

namespace hydrant {

inline constexpr size_t kEvictionBatch = 64;  // regions examined per fence, at most

// The share of the budget that a list of victims frees.
inline Budget::Share share_of(const MappedArray<RegionInfo>& infos,
                              const RegionQueue& victims) noexcept {
  Budget::Share share;
  for (RegionIndex r = victims.front(); r != kNoRegion; r = infos[r].next) {
    share.bytes += infos[r].charge;
    ++share.regions;
  }
  return share;
}

class Evictor {
 public:
  struct Parts {
    RegionStore& store;
    HoldCounts& holds;
    FenceEpoch& epoch;
    Gates& gates;
    RegionTables& tables;
    Retirement& retirement;
    Budget& budget;
    VictimList& victims;
    CacheTotals& totals;
  };
  // `smallest_first`: among victims of equal use the smallest sufficient one is chosen.
  Evictor(const Parts& parts, bool smallest_first) noexcept
      : parts_(parts), smallest_first_(smallest_first), working_set_(parts.store, parts.tables) {}
  WorkingSet& working_set() noexcept { return working_set_; }

  // Opens a region again that was shut because it was watched or examined: it is in use.
  void reopen(const CacheLock&, RegionIndex region) noexcept;
  // True if the region may be evicted when it is not held. A client's policy may name regions that no longer
  // exist: they are skipped.
  bool evictable(const CacheLock& lock, RegionIndex region) const noexcept {
    if (region == kNoRegion || region > parts_.store.high(lock)) return false;
    const RegionInfo& info = parts_.store.infos(lock)[region];
    return info.state == RegionState::kOpen && !info.prepinned;
  }

  // True if there seem to be unheld regions worth the lack: the sums are approximate. Sets `idle` to what was
  // found; if that is too little, to all there is.
  bool may_suffice(const CacheLock&, Budget::Share lack, Budget::Share* idle) noexcept;
  // Retires unheld regions worth at least the lack, or none at all.
  bool evict(const CacheLock&, Budget::Share lack, RegionQueue* victims,
             Budget::Share* idle) noexcept;
  // Retires the regions of these rights or fewer that lie in the range, unless one is held, or they are worth
  // less than what `share` lacks. True: the share has room once they are unpinned. Cost: a fence.
  bool replace(const CacheLock&, MemoryRange range, Access access, Budget::Share share,
               RegionQueue* victims) noexcept;
  // Retires a region that was shut before the last fence and is not held.
  void evict_region(const CacheLock&, RegionIndex region, RegionQueue* victims) noexcept;

 private:
  void watch_more(const CacheLock&) noexcept;
  size_t keep_likely(const CacheLock&, RegionIndex* batch, size_t n) noexcept;
  size_t sort_smallest_first(const CacheLock&, RegionIndex* batch, size_t n,
                             uint64_t bytes) noexcept;
  size_t fence_for(const CacheLock&, RegionIndex* batch, size_t n, uint64_t bytes) noexcept;
  bool evict_first(const CacheLock&, RegionIndex candidate, Budget::Share lack,
                   RegionQueue* victims) noexcept;
  void choose(const CacheLock&, RegionIndex* batch, size_t n, Budget::Share lack,
              RegionQueue* chosen, uint64_t* got) noexcept;
  void take_unheld(const CacheLock&, RegionIndex* batch, size_t n, Budget::Share lack,
                   RegionQueue* chosen, uint64_t* got) noexcept;
  void restore(const CacheLock&, RegionIndex region) noexcept;

  const Parts parts_;
  const bool smallest_first_;
  WorkingSet working_set_;
  RegionIndex search_start_ = kNoRegion;  // where the last search for unheld regions ended
};

}  // namespace hydrant
