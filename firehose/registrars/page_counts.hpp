// How often each page is locked: what turns mlock, which does not nest, into pins that do.
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
  // Counts every page of `range` up by one. Requires: range.valid(), not reaching the top of the
  // address space. Cost: O(log n + intervals touched); allocates.
  void add(MemoryRange range);

  // Counts every page of `range` down by one and calls gone(MemoryRange) for each stretch that nobody
  // locks any more. Requires: covers(range).
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

  // Forgets everything; calls gone(MemoryRange) for each interval.
  template <class Gone>
  void clear(Gone gone) {
    for (const auto& [start, interval] : intervals_) gone(MemoryRange{start, interval.end - start});
    intervals_.clear();
  }

  // Whether every page of `range` is counted at least once.
  bool covers(MemoryRange range) const;
  size_t intervals() const noexcept { return intervals_.size(); }

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
