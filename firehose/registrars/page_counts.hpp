// Counts how often each page is locked. mlock does not nest; with these counts its pins do.
//
// Disjoint intervals with a count each, in address order; pages with count 0 are not listed, and
// neighbours with equal counts are one interval. Not thread-safe.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>
#include <map>

namespace hydrant {

class PageCounts {
 public:
  // Adds one to the count of every page of `range`. Requires: range.valid(), not reaching the top of the
  // address space. Cost: O(log n + intervals touched); allocates.
  void add(MemoryRange range);

  // Subtracts one from the count of every page of `range` and calls gone(MemoryRange) for each run whose
  // count becomes 0. Requires: covers(range).
  template <class Gone>
  void remove(MemoryRange range, Gone gone) {
    const auto first = split(range.addr);
    const auto last = split(range.end());
    for (auto it = first; it != last;) {
      if (--it->second.count > 0) {
        ++it;
        continue;
      }
      gone(MemoryRange{it->first, it->second.end - it->first});
      it = intervals_.erase(it);
    }
    join(range);
  }

  // Subtracts one from the count of every page of `range` and moves the runs whose count becomes 0 to `gone`;
  // the counts in `gone` are meaningless. Requires: covers(range), and `gone` is empty. Allocates at most the
  // two boundaries of `range`.
  void remove_to(MemoryRange range, PageCounts* gone);

  // Empties the map; calls gone(MemoryRange) for each interval.
  template <class Gone>
  void clear(Gone gone) {
    for (const auto& [start, interval] : intervals_) gone(MemoryRange{start, interval.end - start});
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
  };
  using Map = std::map<uintptr_t, Interval>;  // by start

  Map::iterator split(uintptr_t at);
  void join(MemoryRange range);

  Map intervals_;
};

}  // namespace hydrant
