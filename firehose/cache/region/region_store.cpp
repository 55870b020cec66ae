// Stores the regions of a domain by index: slot, information and keys. Every other part of the cache names a
// region by its index here.
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {
RegionStore::RegionStore(uint32_t count, size_t key_bytes, size_t note_bytes) noexcept
    : count_(count), keys_(key_bytes, note_bytes) {}

bool RegionStore::map(RegionSlot* slots) noexcept {
  if (!infos_.map(count_) || !keys_.map(count_)) return false;
  slots_ = slots;
  mark_live();
  return true;
}

void RegionStore::mark_live() noexcept {
  slots_[kNoRegion].addr.store(kBlankAddr, std::memory_order_relaxed);
  slots_[kNoRegion].alive.store(kSlotAlive, std::memory_order_release);
}

RegionIndex RegionStore::extend(const CacheLock&) noexcept {
  if (high_ + 1 >= count_) return kNoRegion;
  const RegionIndex region = ++high_;
  // Release: a thread without the mutex looks at no slot that was never prepared.
  used_.store(high_, std::memory_order_release);
  slots_[region].index = region;
  slots_[region].addr.store(kBlankAddr, std::memory_order_relaxed);
  return region;
}

}  // namespace hydrant
