// Implements RangeSet, a sorted array of disjoint ranges that merges neighbours. The monitor keeps watched
// memory in RangeSets.
#include "firehose/base/range_set.hpp"

#include <algorithm>

namespace hydrant {

size_t RangeSet::first_touching(uintptr_t addr) const noexcept {
  const auto* begin = ranges_.data();
  const auto* found = std::lower_bound(
      begin, begin + count_, addr, [](const MemoryRange& r, uintptr_t a) { return r.end() < a; });
  return static_cast<size_t>(found - begin);
}

bool RangeSet::add(MemoryRange range) noexcept {
  const size_t first = first_touching(range.addr);
  size_t past = first;
  uintptr_t low = range.addr;
  uintptr_t last = range.last();
  while (past < count_ && ranges_[past].addr <= range.end()) {
    low = std::min(low, ranges_[past].addr);
    last = std::max(last, ranges_[past].last());
    ++past;
  }
  if (past == first) {
    if (count_ == ranges_.size()) return false;
    std::copy_backward(ranges_.data() + first, ranges_.data() + count_,
                       ranges_.data() + count_ + 1);
    ++count_;
  } else {
    std::copy(ranges_.data() + past, ranges_.data() + count_, ranges_.data() + first + 1);
    count_ -= past - first - 1;
  }
  ranges_[first] = {low, last - low + 1};
  return true;
}

bool RangeSet::remove(MemoryRange range) noexcept {
  for (size_t i = first_touching(range.addr); i < count_ && ranges_[i].addr <= range.last();) {
    const MemoryRange old = ranges_[i];
    if (!old.overlaps(range)) {
      ++i;
      continue;
    }
    const bool keep_left = old.addr < range.addr;
    const bool keep_right = old.last() > range.last();
    if (keep_left && keep_right) {
      if (count_ == ranges_.size()) return false;
      std::copy_backward(ranges_.data() + i, ranges_.data() + count_, ranges_.data() + count_ + 1);
      ++count_;
      ranges_[i].len = range.addr - old.addr;
      ranges_[i + 1] = {range.end(), old.end() - range.end()};
      return true;
    }
    if (keep_left) {
      ranges_[i++].len = range.addr - old.addr;
    } else if (keep_right) {
      ranges_[i] = {range.end(), old.end() - range.end()};
      return true;
    } else {
      std::copy(ranges_.data() + i + 1, ranges_.data() + count_, ranges_.data() + i);
      --count_;
    }
  }
  return true;
}

bool RangeSet::covers(MemoryRange range) const noexcept {
  // Touching ranges are merged, so one entry covers or none does. The entry that ends at range.addr
  // touches without covering.
  for (size_t i = first_touching(range.addr); i < count_ && ranges_[i].addr <= range.addr; ++i) {
    if (ranges_[i].covers(range)) return true;
  }
  return false;
}

bool RangeSet::next(uintptr_t from, MemoryRange* out) const noexcept {
  size_t i = first_touching(from);
  if (i < count_ && ranges_[i].end() == from) ++i;
  if (i == count_) return false;
  *out = ranges_[i];
  return true;
}

bool RangeSet::overlaps(MemoryRange range) const noexcept {
  for (size_t i = first_touching(range.addr); i < count_ && ranges_[i].addr <= range.last(); ++i) {
    if (ranges_[i].overlaps(range)) return true;
  }
  return false;
}

bool RangeSet::has_any_inside(MemoryRange range) const noexcept {
  for (size_t i = first_touching(range.addr); i < count_ && ranges_[i].addr <= range.last(); ++i) {
    if (range.covers(ranges_[i])) return true;
  }
  return false;
}

}  // namespace hydrant
