#include "firehose/page_table.hpp"

#include <bit>

namespace hydrant {
namespace {
constexpr auto kRead = std::memory_order_acquire;
constexpr auto kWrite = std::memory_order_release;
}  // namespace

bool PageTable::map(size_t max_ranges) noexcept {
  return entries_.map(std::bit_ceil(max_ranges * 2 + 2));
}

RegionIndex PageTable::find(uintptr_t addr) const noexcept {
  const uint64_t bucket = bucket_of(addr);
  const size_t wrap = entries_.size() - 1;
  const uint32_t begun = lock_.begin_read();
  // Bounded even while entries move under the reader.
  for (size_t i = home(bucket), steps = 0; steps <= wrap; i = (i + 1) & wrap, ++steps) {
    const uint64_t seen = entries_[i].bucket.load(kRead);
    if (seen == 0) return kNoRegion;
    if (seen != bucket) continue;
    const RegionIndex index = entries_[i].index.load(kRead);
    return lock_.read_was_clean(begun) ? index : kNoRegion;
  }
  return kNoRegion;
}

RegionIndex PageTable::any_overlap(uintptr_t first, uintptr_t last) const noexcept {
  const uint64_t low = bucket_of(first);
  const uint64_t high = bucket_of(last);
  if (used_ == 0) return kNoRegion;
  if (high - low < used_) {
    for (uint64_t bucket = low; bucket <= high; ++bucket) {
      const RegionIndex index = find((bucket - 1) << bucket_shift_);
      if (index != kNoRegion) return index;
    }
    return kNoRegion;
  }
  // More buckets asked for than there are: look at those there are.
  uint64_t best = UINT64_MAX;
  RegionIndex index = kNoRegion;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const uint64_t bucket = entries_[i].bucket.load(kRead);
    if (bucket < low || bucket > high || bucket >= best) continue;
    best = bucket;
    index = entries_[i].index.load(kRead);
  }
  return index;
}

size_t PageTable::collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                          size_t room) const noexcept {
  const uint64_t low = bucket_of(first);
  const uint64_t high = bucket_of(last);
  size_t n = 0;
  if (used_ == 0) return 0;
  if (high - low < entries_.size()) {
    for (uint64_t bucket = low; bucket <= high && n < room; ++bucket) {
      const RegionIndex index = find((bucket - 1) << bucket_shift_);
      if (index != kNoRegion) out[n++] = index;
    }
    return n;
  }
  for (size_t i = 0; i < entries_.size() && n < room; ++i) {
    const uint64_t bucket = entries_[i].bucket.load(kRead);
    if (bucket >= low && bucket <= high) out[n++] = entries_[i].index.load(kRead);
  }
  return n;
}

RegionIndex PageTable::first_start(uintptr_t first, uintptr_t last) const noexcept {
  const uintptr_t inside = (uintptr_t{1} << bucket_shift_) - 1;
  const uintptr_t aligned = (first + inside) & ~inside;
  return aligned < first || aligned > last ? kNoRegion : any_overlap(aligned, last);
}

void PageTable::insert(MemoryRange range, RegionIndex index) noexcept {
  const uint64_t bucket = bucket_of(range.addr);
  const size_t wrap = entries_.size() - 1;
  size_t i = home(bucket);
  while (entries_[i].bucket.load(kRead) != 0) i = (i + 1) & wrap;
  lock_.begin_write();
  entries_[i].index.store(index, kWrite);
  entries_[i].bucket.store(bucket, kWrite);
  lock_.end_write();
  ++used_;
}

void PageTable::erase(MemoryRange range, RegionIndex index) noexcept {
  const uint64_t bucket = bucket_of(range.addr);
  const size_t wrap = entries_.size() - 1;
  size_t hole = home(bucket);
  while (entries_[hole].bucket.load(kRead) != bucket || entries_[hole].index.load(kRead) != index) {
    hole = (hole + 1) & wrap;
  }
  lock_.begin_write();
  for (size_t i = (hole + 1) & wrap;; i = (i + 1) & wrap) {
    const uint64_t next = entries_[i].bucket.load(kRead);
    if (next == 0) break;
    // An entry may fill the hole unless its home lies behind the hole.
    if (((i - home(next)) & wrap) < ((i - hole) & wrap)) continue;
    entries_[hole].index.store(entries_[i].index.load(kRead), kWrite);
    entries_[hole].bucket.store(next, kWrite);
    hole = i;
  }
  entries_[hole].bucket.store(0, kWrite);
  lock_.end_write();
  --used_;
}

void PageTable::clear() noexcept {
  lock_.begin_write();
  entries_.clear();
  used_ = 0;
  lock_.end_write();
}

}  // namespace hydrant
