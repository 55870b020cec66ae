// Stores the regions of a domain by index: slot, information and key. Every other part of the cache names a
// region by its index here.
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {
namespace {

// Keys are aligned to 8 bytes, and to 16 where they are that long.
constexpr size_t stride_of(size_t key_bytes) {
  const size_t alignment = key_bytes >= 16 ? 16 : 8;
  return (key_bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

RegionStore::RegionStore(uint32_t count, size_t key_bytes, size_t note_bytes) noexcept
    : count_(count), shows_keys_(key_bytes != 0), key_stride_(stride_of(key_bytes + note_bytes)) {}

bool RegionStore::map(RegionSlot* slots) noexcept {
  if (!infos_.map(count_) || (key_stride_ != 0 && !keys_.map(key_stride_ * count_))) return false;
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
