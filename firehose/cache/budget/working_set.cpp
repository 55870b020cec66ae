// Estimates the working set (working_set.hpp) for the planner, when a miss finds no room in the budget.
#include "firehose/cache/budget/working_set.hpp"

#include <algorithm>

namespace hydrant {

void WorkingSet::note_evicted(const CacheLock& lock, MemoryRange range, uint64_t budget) noexcept {
  if (evicted_count_ == kMaxEvicted) make_place(lock, budget);
  evicted_[evicted_count_++] = {range, registered_bytes_};
}

// Drops ranges that count no more. If many others are left, the set does not fit, and none is worth a place.
void WorkingSet::make_place(const CacheLock& lock, uint64_t budget) noexcept {
  size_t kept = 0;
  for (const Evicted& evicted : evicted_) {
    if (evicted.range.len == 0 || !is_recent(evicted.at, budget) ||
        unregistered(lock, evicted.range) == 0)
      continue;
    if (kept == kMostKept) {
      forgotten_at_ = registered_bytes_;
      has_forgotten_ = true;
      evicted_count_ = 0;
      return;
    }
    evicted_[kept++] = evicted;
  }
  evicted_count_ = kept;
}

void WorkingSet::forget(const CacheLock&, MemoryRange range) noexcept {
  for (Evicted& evicted : std::span(evicted_).first(evicted_count_)) {
    if (range.covers(evicted.range)) evicted.range.len = 0;
  }
}

bool WorkingSet::fits(const CacheLock& lock, MemoryRange range, uint64_t budget) noexcept {
  if (gave_up_) return false;
  if (answers_ != 0) {
    --answers_;
    return fits_;
  }
  fits_ = !(has_forgotten_ && is_recent(forgotten_at_, budget)) && judge(lock, range, budget);
  if (!fits_) answers_ = std::max<uint32_t>(kLeastAnswers, store_.high(lock) / 8);
  return fits_;
}

bool WorkingSet::judge(const CacheLock& lock, MemoryRange range, uint64_t budget) noexcept {
  std::array<MemoryRange, kMaxEvicted + 1> outside;
  size_t count = 0;
  outside[count++] = range;
  for (const Evicted& evicted : std::span(evicted_).first(evicted_count_)) {
    if (evicted.range.len != 0 && is_recent(evicted.at, budget)) outside[count++] = evicted.range;
  }
  const uint64_t most = budget - budget / 16;
  uint64_t used = unregistered(lock, std::span(outside).first(count));
  // Memory that is registered with several sets of rights counts for each.
  uint32_t classes = tables_.classes(lock);
  while (classes != 0 && used <= most)
    used += registered(lock, take_lowest(&classes), {1, UINTPTR_MAX - 1});
  return used <= most;
}

// The bytes of the range that are registered with these rights.
uint64_t WorkingSet::registered(const CacheLock& lock, uint32_t rights,
                                MemoryRange range) const noexcept {
  const PinTable& table = tables_.table(lock, rights);
  const auto& infos = store_.infos(lock);
  uint64_t bytes = 0;
  for (uintptr_t from = range.addr;;) {
    const RegionIndex r = table.any_overlap(from, range.last());
    if (r == kNoRegion) return bytes;
    const uintptr_t last = std::min(infos[r].range.last(), range.last());
    bytes += last - std::max(infos[r].range.addr, from) + 1;
    if (last == range.last()) return bytes;
    from = last + 1;
  }
}

uint64_t WorkingSet::unregistered(const CacheLock& lock, MemoryRange range) const noexcept {
  uint64_t covered = 0;
  uint32_t classes = tables_.classes(lock);
  while (classes != 0) covered = std::max(covered, registered(lock, take_lowest(&classes), range));
  return range.len - covered;
}

// The bytes of the ranges' union that are not registered.
uint64_t WorkingSet::unregistered(const CacheLock& lock,
                                  std::span<MemoryRange> ranges) const noexcept {
  std::sort(ranges.begin(), ranges.end(),
            [](MemoryRange a, MemoryRange b) { return a.addr < b.addr; });
  uint64_t bytes = 0;
  MemoryRange whole = ranges[0];
  for (const MemoryRange& range : ranges.subspan(1)) {
    if (range.addr <= whole.end()) {
      whole.len = std::max(whole.last(), range.last()) - whole.addr + 1;
    } else {
      bytes += unregistered(lock, whole);
      whole = range;
    }
  }
  return bytes + unregistered(lock, whole);
}

}  // namespace hydrant
