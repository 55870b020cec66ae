// The regions of a domain by index: slot, control information, keys.
//
// Invariants: slots from high() + 1 on were never used; the null slot never opens. The information of a
// region is reachable under the mutex only, except that of a retiring region, which belongs to the thread
// that unpins it.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/region/cache_lock.hpp"
#include "firehose/cache/region/region_info.hpp"
#include "firehose/cache/region/region_keys.hpp"

#include <atomic>

namespace hydrant {

class RegionStore {
 public:
  // Requires: `key_bytes` or `note_bytes` is 0.
  RegionStore(uint32_t count, size_t key_bytes, size_t note_bytes) noexcept;

  // Reserves address space. `slots` outlives the store and has room for the regions. False when refused.
  [[nodiscard]] bool map(RegionSlot* slots) noexcept;
  // Marks the null slot: this process knows of the domain. After a fork without handlers it is not marked.
  void mark_live() noexcept;
  bool alive() const noexcept {
    return slots_[kNoRegion].alive.load(std::memory_order_acquire) == kSlotAlive;
  }

  uint32_t count() const noexcept { return count_; }
  RegionKeys& keys() noexcept { return keys_; }
  RegionSlot* slots() const noexcept { return slots_; }
  RegionSlot& slot(RegionIndex region) const noexcept { return slots_[region]; }
  RegionIndex index_of(const RegionSlot* slot) const noexcept {
    return static_cast<RegionIndex>(slot - slots_);
  }

  MappedArray<RegionInfo>& infos(const CacheLock&) noexcept { return infos_; }
  const MappedArray<RegionInfo>& infos(const CacheLock&) const noexcept { return infos_; }
  // Requires: the region is in a queue of retiring regions that the calling thread owns.
  const RegionInfo& retiring(RegionIndex region) const noexcept { return infos_[region]; }

  RegionIndex high(const CacheLock&) const noexcept { return high_; }
  // high() for callers without the mutex.
  RegionIndex used() const noexcept { return used_.load(std::memory_order_acquire); }
  // A slot that was never used; kNoRegion if there is none.
  RegionIndex extend(const CacheLock&) noexcept;

 private:
  const uint32_t count_;
  RegionSlot* slots_ = nullptr;
  MappedArray<RegionInfo> infos_;
  RegionKeys keys_;
  RegionIndex high_ = kNoRegion;
  std::atomic<RegionIndex> used_{kNoRegion};
};

}  // namespace hydrant
