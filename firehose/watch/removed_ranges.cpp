// Keeps a bounded, sorted array of removed ranges, and merges the closest two when it is full. The reader
// thread adds removals; RemovalsUnderWay queries them before a miss may cache memory.
#include "firehose/watch/removed_ranges.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

// The first entry that reaches past addr.
size_t RemovedRanges::first_ending_after(uintptr_t addr) const noexcept {
  size_t low = 0;
  size_t high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (entries_[middle].range.last() >= addr) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Replaces entries [from, to) by the n of `with`. Requires room.
void RemovedRanges::replace(size_t from, size_t to, const Entry* with, size_t n) noexcept {
  std::memmove(entries_.data() + from + n, entries_.data() + to, (count_ - to) * sizeof(Entry));
  for (size_t i = 0; i < n; ++i) entries_[from + i] = with[i];
  count_ = count_ - (to - from) + n;
}

void RemovedRanges::join_closest() noexcept {
  size_t best = 0;
  for (size_t i = 0; i + 1 < count_; ++i) {
    const auto gap = [&](size_t k) { return entries_[k + 1].range.addr - entries_[k].range.end(); };
    if (gap(i) < gap(best)) best = i;
  }
  const Entry& a = entries_[best];
  const Entry& b = entries_[best + 1];
  const Entry both{{a.range.addr, b.range.end() - a.range.addr}, std::max(a.number, b.number)};
  replace(best, best + 2, &both, 1);
}

void RemovedRanges::add(MemoryRange range, uint64_t number) noexcept {
  if (count_ + 1 >= entries_.size()) join_closest();
  const size_t from = first_ending_after(range.addr);
  size_t to = from;
  Entry merged{range, number};
  for (; to < count_ && entries_[to].range.addr <= range.last(); ++to) {
    const MemoryRange& other = entries_[to].range;
    const uintptr_t last = std::max(merged.range.last(), other.last());
    merged.range.addr = std::min(merged.range.addr, other.addr);
    merged.range.len = last - merged.range.addr + 1;
    merged.number = std::max(merged.number, entries_[to].number);
  }
  replace(from, to, &merged, 1);
}

void RemovedRanges::forget_where(MemoryRange range, bool only_unknown) noexcept {
  if (count_ == 0) return;
  if (count_ + 1 >= entries_.size()) join_closest();  // a hole in the middle of one makes two
  const auto goes = [only_unknown](const Entry& e) {
    return !only_unknown || e.number == kCallerUnknown;
  };
  const size_t from = first_ending_after(range.addr);
  size_t kept = from;
  size_t at = from;
  for (; at < count_ && entries_[at].range.addr <= range.last(); ++at) {
    Entry e = entries_[at];
    if (goes(e)) {
      const bool stays_below = e.range.addr < range.addr;
      const bool stays_above = e.range.last() > range.last();
      const Entry above{{range.end(), e.range.last() - range.last()}, e.number};
      if (stays_below && stays_above) {
        const Entry both[2] = {{{e.range.addr, range.addr - e.range.addr}, e.number}, above};
        return replace(at, at + 1, both, 2);
      }
      if (stays_below) {
        e.range.len = range.addr - e.range.addr;
      } else if (stays_above) {
        e = above;
      } else {
        continue;
      }
    }
    entries_[kept++] = e;
  }
  replace(kept, at, nullptr, 0);
}

uint64_t RemovedRanges::newest(MemoryRange range) const noexcept {
  uint64_t newest = 0;
  for (size_t i = first_ending_after(range.addr);
       i < count_ && entries_[i].range.addr <= range.last(); ++i) {
    newest = std::max(newest, entries_[i].number);
  }
  return newest;
}

MemoryRange RemovedRanges::first_in(MemoryRange range) const noexcept {
  const size_t i = first_ending_after(range.addr);
  if (i == count_ || entries_[i].range.addr > range.last()) return {};
  const uintptr_t first = std::max(range.addr, entries_[i].range.addr);
  return {first, std::min(range.last(), entries_[i].range.last()) - first + 1};
}

void RemovedRanges::forget_up_to(uint64_t number) noexcept {
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (entries_[i].number > number) entries_[kept++] = entries_[i];
  }
  count_ = kept;
}

}  // namespace hydrant
