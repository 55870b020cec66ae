// Looks up, enters and removes the buckets of page mode, and splits chains as the table grows. RegionTables
// calls it: lookups without the mutex (step 2 of "Tour: a miss with eviction"), changes under it.
#include "firehose/cache/index/page_table.hpp"

#include <algorithm>
#include <bit>

namespace hydrant {
namespace {
constexpr size_t kHeadsPerRegion = 2;
constexpr uint64_t kMaxLookups = 4096;  // of single buckets, without the lock
}  // namespace

bool PageTable::map(size_t max_ranges) noexcept { return heads_.map(max_ranges * kHeadsPerRegion); }

// The low bits of the hash; chains that are not there yet are still part of the one they will be split from.
uint32_t PageTable::chain_of(uint64_t bucket, uint32_t heads) noexcept {
  const auto hash = static_cast<uint32_t>((bucket * 0x9e3779b97f4a7c15u) >> 20);
  const uint32_t round = std::bit_ceil(heads);
  const uint32_t chain = hash & (round - 1);
  return chain < heads ? chain : chain - round / 2;
}

RegionIndex PageTable::find(uintptr_t addr) const noexcept {
  const uint64_t bucket = bucket_of(addr);
  const uint32_t begun = lock_.begin_read();
  const uint32_t heads = head_count_.load(kRead);
  if (heads == 0) return kNoRegion;
  RegionIndex index = heads_[chain_of(bucket, heads)].load(kRead);
  while (index != kNoRegion) {
    const RegionSlot& slot = slots_[index];
    if (slot.addr.load(kRead) == bucket << bucket_shift_) break;
    index = slot.chained.load(kRead);
    // A chain that changes under the reader might have no end.
    if (!lock_.read_was_clean(begun)) return kNoRegion;
  }
  return lock_.read_was_clean(begun) ? index : kNoRegion;
}

// True if the range has fewer buckets than the table: then each is looked up. Otherwise all entries are
// visited.
bool PageTable::few_buckets(uint64_t low, uint64_t high) const noexcept {
  return high - low < std::max<uint64_t>(used_, 1);
}

template <class Visit>
void PageTable::visit_all(const Visit& visit) const noexcept {
  const uint32_t heads = head_count_.load(kRead);
  for (uint32_t i = 0; i < heads; ++i) {
    RegionIndex index = heads_[i].load(kRead);
    for (; index != kNoRegion; index = slots_[index].chained.load(kRead)) {
      visit(bucket_of(slots_[index].addr.load(kRead)), index);
    }
  }
}

RegionIndex PageTable::any_overlap(uintptr_t first, uintptr_t last) const noexcept {
  const uint64_t low = bucket_of(first);
  const uint64_t high = bucket_of(last);
  if (used_ == 0) return kNoRegion;
  if (few_buckets(low, high)) {
    for (uint64_t bucket = low; bucket <= high; ++bucket) {
      const RegionIndex index = find(bucket << bucket_shift_);
      if (index != kNoRegion) return index;
    }
    return kNoRegion;
  }
  uint64_t best = UINT64_MAX;
  RegionIndex found = kNoRegion;
  visit_all([&](uint64_t bucket, RegionIndex index) {
    if (bucket < low || bucket > high || bucket >= best) return;
    best = bucket;
    found = index;
  });
  return found;
}

size_t PageTable::collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                          size_t room) const noexcept {
  const uint64_t low = bucket_of(first);
  const uint64_t high = bucket_of(last);
  size_t n = 0;
  if (used_ == 0) return 0;
  if (few_buckets(low, high)) {
    for (uint64_t bucket = low; bucket <= high && n < room; ++bucket) {
      const RegionIndex index = find(bucket << bucket_shift_);
      if (index != kNoRegion) out[n++] = index;
    }
    return n;
  }
  visit_all([&](uint64_t bucket, RegionIndex index) {
    if (bucket >= low && bucket <= high && n < room) out[n++] = index;
  });
  return n;
}

bool PageTable::collect_unlocked(uintptr_t first, uintptr_t last, RegionIndex* out, size_t room,
                                 size_t* n) const noexcept {
  *n = 0;
  const uint32_t begun = lock_.begin_read();
  const uint64_t low = bucket_of(first);
  const uint64_t high = bucket_of(last);
  if (high - low >= kMaxLookups) return false;
  for (uint64_t bucket = low; bucket <= high; ++bucket) {
    const RegionIndex index = find(bucket << bucket_shift_);
    if (index == kNoRegion) continue;
    if (*n == room) return false;
    out[(*n)++] = index;
  }
  return lock_.read_was_clean(begun);
}

RegionIndex PageTable::first_start(uintptr_t first, uintptr_t last) const noexcept {
  const uintptr_t inside = (uintptr_t{1} << bucket_shift_) - 1;
  const uintptr_t aligned = (first + inside) & ~inside;
  return aligned < first || aligned > last ? kNoRegion : any_overlap(aligned, last);
}

// Splits the next chain in order. Requires: inside a write.
void PageTable::add_head() noexcept {
  const uint32_t fresh = head_count_.load(kRead);
  if (fresh == heads_.size()) return;
  head_count_.store(fresh + 1, kWrite);
  if (fresh == 0) return;
  Link* stays = &heads_[fresh - std::bit_floor(fresh)];
  Link* goes = &heads_[fresh];
  for (RegionIndex index = stays->load(kRead); index != kNoRegion;) {
    RegionSlot& slot = slots_[index];
    const bool moves = chain_of(bucket_of(slot.addr.load(kRead)), fresh + 1) == fresh;
    Link*& end = moves ? goes : stays;
    if (end->load(kRead) != index) end->store(index, kWrite);
    end = &slot.chained;
    index = slot.chained.load(kRead);
  }
  if (goes->load(kRead) != kNoRegion) goes->store(kNoRegion, kWrite);
  if (stays->load(kRead) != kNoRegion) stays->store(kNoRegion, kWrite);
}

bool PageTable::insert(MemoryRange range, RegionIndex index) noexcept {
  if (find(range.addr) != kNoRegion) return false;
  lock_.begin_write();
  ++used_;
  while (head_count_.load(kRead) < std::min(used_ * kHeadsPerRegion, heads_.size())) add_head();
  Link& head = heads_[chain_of(bucket_of(range.addr), head_count_.load(kRead))];
  slots_[index].chained.store(head.load(kRead), kWrite);
  head.store(index, kWrite);
  lock_.end_write();
  return true;
}

void PageTable::erase(MemoryRange range, RegionIndex index) noexcept {
  Link* link = &heads_[chain_of(bucket_of(range.addr), head_count_.load(kRead))];
  while (link->load(kRead) != index) link = &slots_[link->load(kRead)].chained;
  lock_.begin_write();
  link->store(slots_[index].chained.load(kRead), kWrite);
  lock_.end_write();
  --used_;
}

void PageTable::clear() noexcept {
  lock_.reset_in_child();
  lock_.begin_write();
  head_count_.store(0, kWrite);
  heads_.clear();
  used_ = 0;
  lock_.end_write();
}

uint64_t PageTable::memory_bytes() const noexcept {
  return uint64_t{head_count_.load(std::memory_order_relaxed)} * sizeof(Link);
}

}  // namespace hydrant
