// The control path's data about a region, beside its slot; and lists of regions.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/hit/region_slot.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

// The states of a slot. A table lists exactly the open ones.
enum class RegionState : uint8_t {
  kUnused,      // never used since the domain began
  kPending,     // its registration is under way, outside every lock
  kOpen,        // in a table; its gate may be shut because it is watched or being examined
  kDead,        // shut for good; registered until its last hold is released
  kRetiring,    // no holds left; being unpinned, outside every lock
  kQuarantine,  // blank; reusable after one more fence
  kTombstone,   // was held when this process was forked off: never reused
};

struct RegionNeighbours {
  RegionIndex next, previous;
};

struct RegionInfo {
  MemoryRange range;
  uint64_t charge;
  union {
    uint64_t crossed_bytes;  // kOpen: requests that reached over its ends and were registered apart
    RegionNeighbours retiring;  // kRetiring: in UnpinsUnderWay
  };
  union {
    RegionIndex next;
    uint32_t place;  // kPending: in PendingRegions
  };
  RegionIndex previous;
  Access access;
  uint32_t closed_epoch;  // fences issued when it was shut, or made blank
  union {
    uint32_t starter;      // kPending: mark of the thread whose deferred pin started it, or 0
    uint32_t shared_base;  // is_unopened: the slot's shared count when the region had no holds
  };
  RegionState state;
  bool checked : 1;    // open through its checked gate only
  bool hooked : 1;     // open through its plain gate because every acquisition passes a hook
  bool vouched : 1;    // cached because the client vouches for it
  bool listed : 1;     // the policy knows it
  bool prepinned : 1;  // the client's own registration: never evicted, never unpinned
  bool poisoned : 1;   // kPending: invalidated meanwhile, so the registration is undone
  bool extended : 1;   // by a stream: RegionSlot::unused_extension says how much of that is unused
  bool over_released : 1;  // a pin of it was released more often than it was taken
  bool
      uncached : 1;  // used once: kPending, and kDead from the beginning; or its release is not reported
  bool is_unopened : 1;  // kDead from the beginning: its holds are taken in the shared counts alone
  bool looked_at : 1;    // kDead: held when it was last examined, after a fence
  bool shut : 1;         // kOpen: by the mutex's holder, at closed_epoch, and not opened since
  bool released : 1;     // kDead: because its memory was released
};
static_assert(sizeof(RegionInfo) <= 56);

// A queue of regions linked through their infos; a region is in one queue at most.
class RegionQueue {
 public:
  bool empty() const noexcept { return head_ == kNoRegion; }
  size_t size() const noexcept { return size_; }
  RegionIndex front() const noexcept { return head_; }

  void push(MappedArray<RegionInfo>& infos, RegionIndex region) noexcept {
    infos[region].next = kNoRegion;
    infos[region].previous = tail_;
    (tail_ == kNoRegion ? head_ : infos[tail_].next) = region;
    tail_ = region;
    ++size_;
  }
  void remove(MappedArray<RegionInfo>& infos, RegionIndex region) noexcept {
    const RegionInfo& info = infos[region];
    (info.previous == kNoRegion ? head_ : infos[info.previous].next) = info.next;
    (info.next == kNoRegion ? tail_ : infos[info.next].previous) = info.previous;
    --size_;
  }
  RegionIndex pop(MappedArray<RegionInfo>& infos) noexcept {
    const RegionIndex region = head_;
    if (region != kNoRegion) remove(infos, region);
    return region;
  }
  void clear() noexcept {
    head_ = tail_ = kNoRegion;
    size_ = 0;
  }

 private:
  RegionIndex head_ = kNoRegion, tail_ = kNoRegion;
  size_t size_ = 0;
};

// The dead regions of a domain: fresh ones, and regions that were found held since they died. An examination
// costs a fence, which only fresh ones are sure to be worth, so they are counted separately. Fresh regions of
// released memory have a queue of their own: each is worth a fence, because no use of it will come.
class DeadRegions {
 public:
  bool empty() const noexcept { return size() == 0; }
  size_t size() const noexcept { return fresh_count() + held_.size(); }
  size_t fresh_count() const noexcept { return released_.size() + fresh_.size(); }
  size_t released_count() const noexcept { return released_.size(); }
  uint64_t fresh_charge() const noexcept { return fresh_charge_; }
  // Without the mutex: hints that there may be some, and some of released memory.
  bool looks_empty() const noexcept { return hint_.load(std::memory_order_relaxed) == 0; }
  bool looks_unreleased() const noexcept {
    return released_hint_.load(std::memory_order_relaxed) == 0;
  }

  void add(MappedArray<RegionInfo>& infos, RegionIndex region) noexcept {
    if (!infos[region].looked_at) fresh_charge_ += infos[region].charge;
    queue_of(infos[region]).push(infos, region);
    note_size();
  }
  void remove(MappedArray<RegionInfo>& infos, RegionIndex region) noexcept {
    if (!infos[region].looked_at) fresh_charge_ -= infos[region].charge;
    queue_of(infos[region]).remove(infos, region);
    note_size();
  }
  // Removes a region to examine it: released ones first, then other fresh ones, then the one that was
  // examined longest ago. Requires: not empty.
  RegionIndex pop(MappedArray<RegionInfo>& infos) noexcept {
    const RegionQueue& next = !released_.empty() ? released_ : !fresh_.empty() ? fresh_ : held_;
    const RegionIndex region = next.front();
    remove(infos, region);
    infos[region].looked_at = true;
    return region;
  }
  // Moves the regions of the range to `out`, to examine them.
  void take(MappedArray<RegionInfo>& infos, MemoryRange range, RegionQueue* out) noexcept {
    for (RegionQueue* queue : {&released_, &fresh_, &held_}) {
      for (RegionIndex r = queue->front(), next = kNoRegion; r != kNoRegion; r = next) {
        next = infos[r].next;
        if (!infos[r].range.overlaps(range)) continue;
        remove(infos, r);
        infos[r].looked_at = true;
        out->push(infos, r);
      }
    }
  }
  void clear() noexcept {
    released_.clear();
    fresh_.clear();
    held_.clear();
    fresh_charge_ = 0;
    note_size();
  }

  // Calls visit(region) for each until it returns false; returns false then.
  template <class Visit>
  bool each(const MappedArray<RegionInfo>& infos, const Visit& visit) const {
    for (const RegionQueue* queue : {&released_, &fresh_, &held_}) {
      for (RegionIndex r = queue->front(); r != kNoRegion; r = infos[r].next) {
        if (!visit(r)) return false;
      }
    }
    return true;
  }

 private:
  RegionQueue& queue_of(const RegionInfo& info) noexcept {
    if (info.looked_at) return held_;
    return info.released ? released_ : fresh_;
  }
  void note_size() noexcept {
    hint_.store(static_cast<uint32_t>(size()), std::memory_order_relaxed);
    released_hint_.store(static_cast<uint32_t>(released_count()), std::memory_order_relaxed);
  }

  RegionQueue released_, fresh_, held_;
  uint64_t fresh_charge_ = 0;
  std::atomic<uint32_t> hint_{0}, released_hint_{0};
};

}  // namespace hydrant
