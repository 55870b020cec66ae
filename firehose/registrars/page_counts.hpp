// Counts how often each page is locked. mlock does not nest; with these counts its pins do.
//
// Disjoint intervals with a count each, in address order; pages with count 0 are not listed, and
// neighbours with equal counts are one interval. An interval may be marked as kept: its lock is not the
// registrar's own, and remains when the count becomes 0. Not thread-safe.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/registrars/node_pool.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace hydrant {

class PageCounts {
 public:
  explicit PageCounts(NodePool* pool) noexcept
      : pool_(pool), intervals_(Map::allocator_type(pool)) {}

  // Allocates what add(range) and `keeps` calls of keep() need. False if memory is used up.
  bool reserve(MemoryRange range, size_t keeps = 0) noexcept {
    size_t nodes = 2 + 2 * keeps + kSpare;
    each_gap(range, [&](MemoryRange) { ++nodes; });
    return pool_->reserve(nodes);
  }

  // Adds one to the count of every page of `range`. Requires: range.valid(), not reaching the top of the
  // address space, and reserve(). Cost: O(log n + intervals touched).
  void add(MemoryRange range) noexcept;

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

  // Marks the pages of `range` as kept until their count becomes 0. Requires: covers(range), and reserve().
  void keep(MemoryRange range) noexcept;

  // Subtracts one from the count of every page of `range` and moves the runs whose count becomes 0 to
  // `gone`, except kept ones; the counts in `gone` are meaningless. Requires: covers(range); `gone` is empty
  // and has the same pool. Where not even two nodes can be allocated, intervals that reach beyond `range`
  // keep their counts: their pages remain locked.
  void remove_to(MemoryRange range, PageCounts* gone) noexcept;
  // The same; calls gone(MemoryRange) for each run.
  template <class Gone>
  void remove(MemoryRange range, Gone gone) {
    PageCounts removed(pool_);
    remove_to(range, &removed);
    removed.each(gone);
  }

  // Calls each(MemoryRange) for each interval that is not kept.
  template <class Each>
  void each(Each each) const {
    for (const auto& [start, interval] : intervals_) {
      if (!interval.kept) each(MemoryRange{start, interval.end - start});
    }
  }
  void clear() noexcept { intervals_.clear(); }

  // Whether every page of `range` has a count of at least one.
  bool covers(MemoryRange range) const noexcept;
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
  // By start.
  using Map = std::map<uintptr_t, Interval, std::less<>,
                       NodePool::Allocator<std::pair<const uintptr_t, Interval>>>;
  // Nodes that reserve() leaves for a later remove_to(), which splits two intervals at most.
  static constexpr size_t kSpare = 4;

  Map::iterator split(uintptr_t at) noexcept;
  void join(MemoryRange range) noexcept;

  NodePool* pool_;
  Map intervals_;
};

}  // namespace hydrant
