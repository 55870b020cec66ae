// Counts how often each page is locked. mlock does not nest; with these counts its pins do.
//
// Disjoint intervals with a count each, in address order; pages with count 0 are not listed, and
// neighbours with equal counts are one interval. An interval may be marked as kept: its lock is not the
// registrar's own, and remains when the count becomes 0. Not thread-safe.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace hydrant {

class PageCounts {
 public:
  // Adds one to the count of every page of `range`. Requires: range.valid(), not reaching the top of the
  // address space. Cost: O(log n + intervals touched); allocates.
  void add(MemoryRange range);

  // Calls each(MemoryRange) for each run of `range` with count 0, in address order.
  template <class Each>
  void each_gap(MemoryRange range, Each each) const {
    uintptr_t at = range.addr;
    auto it = intervals_.upper_bound(at);
    if (it != intervals_.begin()) at = std::max(at, std::prev(it)->second.end);
    for (; at < range.end(); ++it) {
      const bool last = it == intervals_.end() || it->first >= range.end();
      const uintptr_t gap_end = last ? range.end() : it->first;
      if (at < gap_end) each(MemoryRange{at, gap_end - at});
      if (last) return;
      at = it->second.end;
    }
  }

  // Marks the pages of `range` as kept until their count becomes 0. Requires: covers(range). Allocates at
  // most the two boundaries of `range`.
  void keep(MemoryRange range);

  // Subtracts one from the count of every page of `range` and calls gone(MemoryRange) for each run whose
  // count becomes 0, except kept ones. Requires: covers(range).
  template <class Gone>
  void remove(MemoryRange range, Gone gone) {
    const auto first = split(range.addr);
    const auto last = split(range.end());
    for (auto it = first; it != last;) {
      if (--it->second.count > 0) {
        ++it;
        continue;
      }
      if (!it->second.kept) gone(MemoryRange{it->first, it->second.end - it->first});
      it = intervals_.erase(it);
    }
    join(range);
  }

  // Subtracts one from the count of every page of `range` and moves the runs whose count becomes 0 to
  // `gone`, except kept ones; the counts in `gone` are meaningless. Requires: covers(range), and `gone` is
  // empty. Allocates at most the two boundaries of `range`.
  void remove_to(MemoryRange range, PageCounts* gone);

  // Empties the map; calls gone(MemoryRange) for each interval that is not kept.
  template <class Gone>
  void clear(Gone gone) {
    for (const auto& [start, interval] : intervals_) {
      if (!interval.kept) gone(MemoryRange{start, interval.end - start});
    }
    intervals_.clear();
  }

  // Whether every page of `range` has a count of at least one.
  bool covers(MemoryRange range) const;
  size_t intervals() const noexcept { return intervals_.size(); }
  // The range from the first to the last counted page. Requires: intervals() != 0.
  MemoryRange bounds() const noexcept {
    const uintptr_t first = intervals_.begin()->first;
    return {first, intervals_.rbegin()->second.end - first};
  }

 private:
  struct Interval {
    uintptr_t end;
    uint64_t count;
    bool kept = false;
  };
  using Map = std::map<uintptr_t, Interval>;  // by start

  Map::iterator split(uintptr_t at);
  void join(MemoryRange range);

  Map intervals_;
};

}  // namespace hydrant
