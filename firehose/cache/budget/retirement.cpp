// Moves a region out of the cache, from open over dead to retiring. Eviction, invalidation and the last
// release end here; the unpinner (unpinner.hpp) then unpins without the mutex.
#include "firehose/cache/budget/retirement.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kRetirementBatch = 64;
// Dead regions of memory that is still there are worth a fence when there are so many, or so much of the
// budget, or so many bytes.
constexpr size_t kLazyDead = 32;
constexpr size_t kReleasedAtOnce = 64;
constexpr uint64_t kLazyDeadShare = 8;
constexpr uint64_t kLazyDeadBytes = uint64_t{64} << 20;

}  // namespace

void Retirement::close(const CacheLock& lock, RegionIndex region) noexcept {
  // In this order: an invalidation without the mutex finds the region in the table while its gate may be
  // open.
  parts_.gates.shut(lock, region);
  parts_.tables.erase(lock, region);
  parts_.store.slot(region).tag.store(0, std::memory_order_release);
  parts_.store.infos(lock)[region].state = RegionState::kDead;
}

void Retirement::add_dead(const CacheLock& lock, RegionIndex region) noexcept {
  dead_.add(parts_.store.infos(lock), region);
}

void Retirement::remove_dead(const CacheLock& lock, RegionIndex region) noexcept {
  dead_.remove(parts_.store.infos(lock), region);
}

void Retirement::retire(const CacheLock& lock, RegionIndex region, RegionQueue* retired) noexcept {
  auto& infos = parts_.store.infos(lock);
  parts_.victims.remove(lock, region);
  RegionSlot& slot = parts_.store.slot(region);
  if (infos[region].extended) parts_.extensions.judge(lock, region);
  slot.tag.store(0, std::memory_order_relaxed);
  // Blank before the fence that ends the quarantine: a late holder then sees neither old nor new bounds.
  slot.addr.store(kBlankAddr, std::memory_order_release);
  parts_.unpins.begin(lock, region, retired);
}

bool Retirement::has_retiring(const CacheLock& lock, MemoryRange range) const noexcept {
  const auto& infos = parts_.store.infos(lock);
  const auto is_apart = [&](RegionIndex r) { return !infos[r].range.overlaps(range); };
  return !dead_.each(infos, is_apart) || parts_.unpins.any_overlap(lock, range);
}

void Retirement::settle(const CacheLock& lock, RegionQueue* list, RegionQueue* retired) noexcept {
  if (list->empty()) return;
  auto& infos = parts_.store.infos(lock);
  bool fenced = true;
  for (RegionIndex r = list->front(); r != kNoRegion; r = infos[r].next) {
    fenced = fenced && infos[r].closed_epoch != parts_.epoch.now(lock);
  }
  if (!fenced) parts_.epoch.fence(lock);
  RegionIndex batch[kRetirementBatch];
  uint32_t sums[kRetirementBatch];
  while (!list->empty()) {
    size_t n = 0;
    while (n < kRetirementBatch && !list->empty()) batch[n++] = list->pop(infos);
    parts_.holds.settled(lock, batch, n, sums);
    for (size_t i = 0; i < n; ++i) {
      if (sums[i] == 0) {
        retire(lock, batch[i], retired);
      } else {
        dead_.add(infos, batch[i]);
      }
    }
  }
}

void Retirement::drain(const CacheLock& lock, size_t most, RegionQueue* retired) noexcept {
  if (dead_.empty()) return;
  auto& infos = parts_.store.infos(lock);
  RegionQueue examine;
  for (size_t n = std::min(most, dead_.size()); n > 0; --n) examine.push(infos, dead_.pop(infos));
  settle(lock, &examine, retired);
}

void Retirement::drain(const CacheLock& lock, MemoryRange range, RegionQueue* retired) noexcept {
  RegionQueue examine;
  take_dead(lock, range, &examine);
  settle(lock, &examine, retired);
}

bool Retirement::drain_released(const CacheLock& lock, RegionQueue* retired) noexcept {
  if (dead_.released_count() == 0) return false;
  // The fence serves the other fresh ones, too. What is held is deregistered by its last release.
  drain(lock, std::min(dead_.fresh_count(), kReleasedAtOnce), retired);
  return dead_.released_count() != 0;
}

void Retirement::drain_many(const CacheLock& lock, uint64_t budget_bytes,
                            RegionQueue* retired) noexcept {
  if (dead_.released_count() != 0) return (void)drain_released(lock, retired);
  const uint64_t max_bytes = std::min(budget_bytes / kLazyDeadShare, kLazyDeadBytes);
  if (dead_.fresh_count() < kLazyDead && dead_.fresh_charge() <= max_bytes) return;
  drain(lock, 2 * kLazyDead, retired);
}

}  // namespace hydrant
