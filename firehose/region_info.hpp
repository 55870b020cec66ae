// What the control path knows of a region beside its slot, and lists of regions.
#pragma once

#include "firehose/mapped_array.hpp"
#include "firehose/region_slot.hpp"

#include <cstdint>

namespace hydrant {

// Where a slot is in its life. A table lists exactly the open ones.
enum class RegionState : uint8_t {
  kUnused,      // never used since the domain began
  kPending,     // its registration is under way, outside every lock
  kOpen,        // in a table; its gate may be shut because it is watched or being examined
  kDead,        // shut for good; registered until its holds are gone
  kRetiring,    // nobody holds it; it is being unpinned, outside every lock
  kQuarantine,  // blank; reusable after one more fence
  kTombstone,   // was held when this process was forked off: never reused
};

struct RegionInfo {
  MemoryRange range;
  uint64_t charge;
  uint64_t crossed_bytes;  // kOpen: requests that reached over its ends and were registered apart
  RegionIndex next, previous;
  Access access;
  uint32_t closed_epoch;  // fences issued when it was shut, or made blank
  uint32_t starter;       // kPending: mark of the thread whose deferred pin started it, or 0
  RegionState state;
  bool checked : 1;        // open through its checked gate only
  bool vouched : 1;        // cached on the client's word
  bool listed : 1;         // the policy knows it
  bool prepinned : 1;      // the client's own registration: never evicted, never unpinned
  bool poisoned : 1;       // kPending: invalidated meanwhile, so the registration is worth nothing
  bool extended : 1;       // by a stream: RegionSlot::unreached says how much of that is unused
  bool over_released : 1;  // a pin of it was released more often than it was taken
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

}  // namespace hydrant
