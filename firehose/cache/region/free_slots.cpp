// Hands out the slots of new regions, and keeps those of old ones in quarantine. A miss takes a slot when it
// claims its registration.
#include "firehose/cache/region/free_slots.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kSlotBatch = 64;
// A batch that leaves quarantine has one more slot per this many threads.
constexpr uint32_t kThreadsPerSlot = 8;

}  // namespace

RegionIndex FreeSlots::allocate(const CacheLock& lock) noexcept {
  auto& infos = store_.infos(lock);
  RegionIndex found = kNoRegion;
  if (reusable_.empty() && holds_.threads(lock) < kThreadsPerSlot) {
    found = take_oldest(lock);
  } else {
    if (reusable_.empty() && !quarantine_.empty()) end_quarantine(lock);
    found = reusable_.pop(infos);
  }
  if (found != kNoRegion) return found;
  found = store_.extend(lock);
  if (found != kNoRegion) return found;
  epoch_.fence(lock);
  for (size_t tries = quarantine_.size(); tries > 0 && reusable_.empty();) {
    tries -= std::min(tries, end_quarantine(lock));
  }
  return reusable_.pop(infos);
}

// The slot that has been in quarantine longest, if it was fenced and is not held: a batch of one.
RegionIndex FreeSlots::take_oldest(const CacheLock& lock) noexcept {
  auto& infos = store_.infos(lock);
  const RegionIndex oldest = quarantine_.front();
  if (oldest == kNoRegion || infos[oldest].closed_epoch == epoch_.now(lock)) return kNoRegion;
  quarantine_.remove(infos, oldest);
  if (holds_.settled(lock, oldest) == 0) return oldest;
  quarantine_.push(infos, oldest);
  return kNoRegion;
}

// The batch is small while a sum over few threads is cheap.
size_t FreeSlots::end_quarantine(const CacheLock& lock) noexcept {
  auto& infos = store_.infos(lock);
  RegionIndex batch[kSlotBatch];
  uint32_t sums[kSlotBatch];
  const size_t most = std::min<size_t>(1 + holds_.threads(lock) / kThreadsPerSlot, kSlotBatch);
  size_t n = 0;
  while (n < most && !quarantine_.empty() &&
         infos[quarantine_.front()].closed_epoch != epoch_.now(lock)) {
    batch[n++] = quarantine_.pop(infos);
  }
  if (n == 0) return 0;
  holds_.settled(lock, batch, n, sums);
  for (size_t i = 0; i < n; ++i) {
    // A sum other than 0: a thread is between posting and checking.
    (sums[i] == 0 ? reusable_ : quarantine_).push(infos, batch[i]);
  }
  return n;
}

void FreeSlots::quarantine(const CacheLock& lock, RegionIndex region) noexcept {
  auto& infos = store_.infos(lock);
  infos[region].state = RegionState::kQuarantine;
  infos[region].closed_epoch = epoch_.now(lock);
  quarantine_.push(infos, region);
}

void FreeSlots::clear(const CacheLock&) noexcept {
  quarantine_.clear();
  reusable_.clear();
}

}  // namespace hydrant
