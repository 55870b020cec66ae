// Lists the regions that are being unpinned. Retirement adds them, the unpinner (unpinner.hpp) removes them,
// and invalidations wait for them.
#include "firehose/cache/budget/unpins_under_way.hpp"

namespace hydrant {

void UnpinsUnderWay::begin(const CacheLock& lock, RegionIndex region,
                           RegionQueue* retired) noexcept {
  auto& infos = store_.infos(lock);
  infos[region].state = RegionState::kRetiring;
  infos[region].retiring = {first_, kNoRegion};
  if (first_ != kNoRegion) infos[first_].retiring.previous = region;
  first_ = region;
  retired->push(infos, region);
}

void UnpinsUnderWay::end(const CacheLock& lock, RegionIndex region) noexcept {
  auto& infos = store_.infos(lock);
  if (infos[region].state != RegionState::kRetiring) return;
  const auto [next, previous] = infos[region].retiring;
  (previous == kNoRegion ? first_ : infos[previous].retiring.next) = next;
  if (next != kNoRegion) infos[next].retiring.previous = previous;
  if (waiting_ != 0) unpinned_.notify_all();
}

bool UnpinsUnderWay::wait(const CacheLock& lock, uint64_t deadline_ns) noexcept {
  ++waiting_;
  const bool in_time = lock.wait_until(unpinned_, deadline_ns);
  --waiting_;
  return in_time;
}

bool UnpinsUnderWay::any_overlap(const CacheLock& lock, MemoryRange range) const noexcept {
  const auto& infos = store_.infos(lock);
  for (RegionIndex r = first_; r != kNoRegion; r = infos[r].retiring.next) {
    if (infos[r].range.overlaps(range)) return true;
  }
  return false;
}

}  // namespace hydrant
