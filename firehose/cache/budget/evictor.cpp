// Chooses victims and proves with one fence that no thread holds them. A miss that lacks budget comes here
// while it reserves (step 4 of "Tour: a miss with eviction").
#include "firehose/cache/budget/evictor.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kFirstBatch = 4;  // requested from the policy at first: mostly one is enough

}  // namespace

void Evictor::reopen(const CacheLock& lock, RegionIndex region) noexcept {
  parts_.gates.open(lock, region);
  if (!parts_.store.infos(lock)[region].prepinned) parts_.victims.policy(lock).touch(region);
}

void Evictor::watch_more(const CacheLock& lock) noexcept {
  RegionIndex batch[kEvictionBatch];
  const size_t n = parts_.victims.policy(lock).watch(batch, kEvictionBatch);
  for (size_t i = 0; i < n; ++i) {
    if (evictable(lock, batch[i])) parts_.gates.shut(lock, batch[i]);
  }
}

// Drops regions that cannot be victims before a fence is issued for them. The sums are approximate here: a
// region that is dropped was held a moment ago, which counts as a use.
size_t Evictor::keep_likely(const CacheLock& lock, RegionIndex* batch, size_t n) noexcept {
  uint32_t sums[kEvictionBatch];
  size_t candidates = 0;
  for (size_t i = 0; i < n; ++i) {
    if (evictable(lock, batch[i])) batch[candidates++] = batch[i];
  }
  parts_.holds.sum(lock, batch, candidates, sums);
  size_t kept = 0;
  for (size_t i = 0; i < candidates; ++i) {
    if (static_cast<int32_t>(sums[i]) <= 0) {
      batch[kept++] = batch[i];
    } else {
      reopen(lock, batch[i]);
    }
  }
  return kept;
}

// Sorts regions that may still be in use by what a wrong eviction costs: first those that suffice alone,
// smallest first, then the others, largest first. Returns how many there are.
size_t Evictor::sort_smallest_first(const CacheLock& lock, RegionIndex* batch, size_t n,
                                    uint64_t bytes) noexcept {
  const size_t more = parts_.victims.policy(lock).evict(batch, kEvictionBatch / 2);
  n = keep_likely(lock, batch, std::max(n, more));
  const auto& infos = parts_.store.infos(lock);
  std::sort(batch, batch + n, [&](RegionIndex a, RegionIndex b) {
    const bool a_is_enough = infos[a].charge >= bytes;
    const bool b_is_enough = infos[b].charge >= bytes;
    if (a_is_enough != b_is_enough) return a_is_enough;
    return a_is_enough ? infos[a].charge < infos[b].charge : infos[a].charge > infos[b].charge;
  });
  return n;
}

// Issues a fence, and lets it serve as many other regions as the policy wants watched. Returns the size of
// the batch.
size_t Evictor::fence_for(const CacheLock& lock, RegionIndex* batch, size_t n,
                          uint64_t bytes) noexcept {
  if (smallest_first_) n = sort_smallest_first(lock, batch, n, bytes);
  watch_more(lock);
  for (size_t i = 0; i < n; ++i) parts_.gates.shut(lock, batch[i]);
  parts_.epoch.fence(lock);
  return n;
}

// Moves unheld regions from the policy to `chosen` until they are worth enough or none is left. The policy
// has proposed the first batch.
void Evictor::choose(const CacheLock& lock, RegionIndex* batch, size_t n, Budget::Share lack,
                     RegionQueue* chosen, uint64_t* got) noexcept {
  size_t examined = 0;
  size_t batch_size = kFirstBatch;
  const size_t most = parts_.budget.regions(lock) + kEvictionBatch;
  while (n != 0) {
    examined += n;
    n = keep_likely(lock, batch, n);
    if (n != 0) take_unheld(lock, batch, n, lack, chosen, got);
    if ((*got >= lack.bytes && chosen->size() >= lack.regions) || examined >= most) return;
    n = parts_.victims.policy(lock).evict(batch, batch_size);
    batch_size = std::min(2 * batch_size, kEvictionBatch / 2);
  }
}

void Evictor::take_unheld(const CacheLock& lock, RegionIndex* batch, size_t n, Budget::Share lack,
                          RegionQueue* chosen, uint64_t* got) noexcept {
  auto& infos = parts_.store.infos(lock);
  // Regions that were watched before the last fence can be judged at once.
  size_t usable = 0;
  while (usable < n && infos[batch[usable]].shut &&
         infos[batch[usable]].closed_epoch != parts_.epoch.now(lock)) {
    ++usable;
  }
  if (usable == 0) usable = fence_for(lock, batch, n, lack.bytes > *got ? lack.bytes - *got : 0);
  uint32_t sums[kEvictionBatch];
  parts_.holds.sum(lock, batch, usable, sums);
  for (size_t i = 0; i < usable && (*got < lack.bytes || chosen->size() < lack.regions); ++i) {
    const RegionIndex r = batch[i];
    if (!evictable(lock, r)) continue;  // named twice
    if (parts_.holds.correct(lock, r, sums[i]) != 0) {
      reopen(lock, r);
      continue;
    }
    parts_.victims.remove(lock, r);
    infos[r].state = RegionState::kRetiring;
    chosen->push(infos, r);
    *got += infos[r].charge;
  }
}

// Called before any gate is shut, so that a request that cannot be served costs no thread a hit. The search
// goes on where it stopped the last time; otherwise each eviction would pass over the same held regions.
bool Evictor::may_suffice(const CacheLock& lock, Budget::Share lack, Budget::Share* idle) noexcept {
  if (lack.bytes > parts_.budget.charged(lock) || lack.regions > parts_.budget.regions(lock)) {
    return false;
  }
  const auto& infos = parts_.store.infos(lock);
  const RegionIndex high = parts_.store.high(lock);
  for (RegionIndex seen = 0; seen < high; ++seen) {
    const RegionIndex r = search_start_ = search_start_ < high ? search_start_ + 1 : 1;
    if (infos[r].state != RegionState::kOpen || infos[r].prepinned) continue;
    if (static_cast<int32_t>(parts_.holds.sum(lock, r)) > 0) continue;
    idle->bytes += infos[r].charge;
    ++idle->regions;
    if (idle->bytes >= lack.bytes && idle->regions >= lack.regions) return true;
  }
  return false;
}

void Evictor::restore(const CacheLock& lock, RegionIndex region) noexcept {
  parts_.store.infos(lock)[region].state = RegionState::kOpen;
  parts_.victims.add(lock, region);
  parts_.gates.open(lock, region);
}

// The common case: the policy's first victim suffices alone, was watched before the last fence, and is not
// held.
bool Evictor::evict_first(const CacheLock& lock, RegionIndex r, Budget::Share lack,
                          RegionQueue* victims) noexcept {
  if (lack.regions > 1 || !evictable(lock, r)) return false;
  const RegionInfo& info = parts_.store.infos(lock)[r];
  if (info.charge < lack.bytes || !info.shut || info.closed_epoch == parts_.epoch.now(lock) ||
      parts_.holds.settled(lock, r) != 0)
    return false;
  working_set_.note_evicted(lock, info.range, parts_.budget.in_force(lock));
  evict_region(lock, r, victims);
  return true;
}

bool Evictor::evict(const CacheLock& lock, Budget::Share lack, RegionQueue* victims,
                    Budget::Share* idle) noexcept {
  RegionIndex batch[kEvictionBatch];
  const size_t n = parts_.victims.policy(lock).evict(batch, kFirstBatch);
  if (n != 0 && evict_first(lock, batch[0], lack, victims)) return true;
  if (!may_suffice(lock, lack, idle)) return false;
  RegionQueue chosen;
  uint64_t got = 0;
  choose(lock, batch, n, lack, &chosen, &got);
  const bool enough = got >= lack.bytes && chosen.size() >= lack.regions;
  while (!chosen.empty()) {
    const RegionIndex r = chosen.pop(parts_.store.infos(lock));
    // All or nothing: a request that cannot be served must not cost others their regions.
    if (enough) {
      working_set_.note_evicted(lock, parts_.store.infos(lock)[r].range,
                                parts_.budget.in_force(lock));
      evict_region(lock, r, victims);
    } else {
      restore(lock, r);
    }
  }
  return enough;
}

bool Evictor::replace(const CacheLock& lock, MemoryRange range, Access access, Budget::Share share,
                      RegionQueue* victims) noexcept {
  const Budget::Share lack = parts_.budget.shortage(lock, share);
  if (lack.bytes == 0 && lack.regions == 0) return true;
  RegionIndex batch[kEvictionBatch];
  size_t n = 0;
  parts_.tables.each_within(lock, range, access, [&](RegionIndex r) {
    if (n < kEvictionBatch) batch[n++] = r;
  });
  n = keep_likely(lock, batch, n);
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; ++i) bytes += parts_.store.infos(lock)[batch[i]].charge;
  if (bytes < lack.bytes || n < lack.regions) return false;
  for (size_t i = 0; i < n; ++i) parts_.gates.shut(lock, batch[i]);
  parts_.epoch.fence(lock);
  uint32_t holds[kEvictionBatch];
  parts_.holds.settled(lock, batch, n, holds);
  if (std::any_of(holds, holds + n, [](uint32_t held) { return held != 0; })) {
    for (size_t i = 0; i < n; ++i) reopen(lock, batch[i]);
    return false;
  }
  for (size_t i = 0; i < n; ++i) {
    Extensions::note_all_reached(parts_.store.slot(batch[i]));  // the new region may reach it yet
    parts_.tables.erase(lock, batch[i]);
    parts_.retirement.retire(lock, batch[i], victims);
    ++parts_.totals.of(lock).merges;
  }
  return true;
}

void Evictor::evict_region(const CacheLock& lock, RegionIndex region,
                           RegionQueue* victims) noexcept {
  parts_.tables.erase(lock, region);
  parts_.retirement.retire(lock, region, victims);
  ++parts_.totals.of(lock).evictions;
}

}  // namespace hydrant
