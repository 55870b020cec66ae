// Counts how often each page is locked. mlock does not nest; with these counts its pins do.
//
// Disjoint intervals with a count each, in address order; pages without a pin are not listed, and
// neighbours with equal counts are one interval. An interval may be marked as kept: its lock is not the
// registrar's own, and remains when the count becomes 0. Pins whose memory was unmapped are counted apart. A
// pin has a stamp, the number of reports of unmapped memory before it, which shows which count it is in: that
// of unmapped memory if the last report for the page came later. Pins without a stamp are taken for old ones
// first. So pages stay locked while any pin of the memory that is there is left. Not thread-safe.
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

class PagePinCounts {
 public:
  static constexpr uint64_t kNoStamp = 0;

  explicit PagePinCounts(NodePool* pool) noexcept
      : pool_(pool), intervals_(Map::allocator_type(pool)) {}

  // Allocates what add(range) and `keeps` calls of keep() need. False if memory is used up.
  bool reserve(MemoryRange range, size_t keeps = 0) noexcept {
    size_t nodes = 2 + 2 * keeps + kSpare;
    each_run_between(
        range, [](const Interval&) { return true; }, [&](MemoryRange) { ++nodes; });
    return pool_->reserve(nodes);
  }

  // Adds one to the count of every page of `range`. Requires: range.valid(), not reaching the top of the
  // address space, and reserve(). Cost: O(log n + intervals touched).
  // No page of `range` is kept afterwards: keep() follows for those that are still locked.
  // Returns the pin's stamp, which is not kNoStamp.
  uint64_t add(MemoryRange range) noexcept;

  // Calls each(MemoryRange) for each run of `range` with count 0, or kept, in address order: where locks may
  // be the program's.
  template <class Each>
  void each_not_own(MemoryRange range, Each each) const {
    each_run_between(
        range, [](const Interval& interval) { return interval.count != 0 && interval.kept == 0; },
        each);
  }

  // Marks the pages of `range` as kept until their count becomes 0, or add() adds to it.
  // Requires: covers(range), and reserve().
  void keep(MemoryRange range) noexcept;

  // The pins of all pages of `range` have lost their memory: the counts become 0, and no later remove_to()
  // reports them. False if two nodes are needed and not free; nothing has changed then.
  bool note_unmapped(MemoryRange range) noexcept;
  // The same, allocating; where memory is used up, of all intervals that overlap `range`.
  void must_note_unmapped(MemoryRange range) noexcept;

  // Ends one pin of every page of `range` and enters the runs whose count becomes 0 into `gone`, except kept
  // ones; the counts in `gone` are 1. Requires: covers(range); `gone` is empty and has the same pool. Where
  // not even two nodes can be allocated, intervals that reach beyond `range` keep their counts: their pages
  // remain locked. So do runs that also have pins of unmapped memory, without a node for each.
  void remove_to(MemoryRange range, PagePinCounts* gone, uint64_t stamp = kNoStamp) noexcept;
  // The same; calls gone(MemoryRange) for each run.
  template <class Gone>
  void remove(MemoryRange range, Gone gone, uint64_t stamp = kNoStamp) {
    PagePinCounts removed(pool_);
    remove_to(range, &removed, stamp);
    removed.each(gone);
  }

  // Bytes of kept runs whose count has become 0 since the last call.
  uint64_t take_left_bytes() noexcept { return std::exchange(left_bytes_, 0); }

  // Calls each(MemoryRange) for each interval with a count that is not kept.
  template <class Each>
  void each(Each each) const {
    for (const auto& [start, interval] : intervals_) {
      if (interval.count != 0 && interval.kept == 0) each(MemoryRange{start, interval.end - start});
    }
  }
  void clear() noexcept { intervals_.clear(); }

  // Whether every page of `range` has a pin.
  bool covers(MemoryRange range) const noexcept;
  size_t intervals() const noexcept { return intervals_.size(); }
  // The range from the first to the last page that is listed. Requires: intervals() != 0.
  MemoryRange bounds() const noexcept {
    const uintptr_t first = intervals_.begin()->first;
    return {first, intervals_.rbegin()->second.end - first};
  }

 private:
  struct Interval {
    uintptr_t end;
    uint32_t count : 31;       // pins of the memory that is there; each has a region of a cache
    uint32_t kept : 1 = 0;     // count != 0
    uint32_t unmapped = 0;     // pins of memory that was there before
    uint64_t reported_at = 0;  // unmapped != 0: their stamps are below, those of the other pins not

    bool is_like(const Interval& other) const noexcept {
      return count == other.count && kept == other.kept && unmapped == other.unmapped &&
             reported_at == other.reported_at;
    }
    bool has_old(uint64_t stamp) const noexcept {
      return unmapped != 0 && (stamp == kNoStamp || count == 0 || stamp < reported_at);
    }
  };
  // By start.
  using Map = std::map<uintptr_t, Interval, std::less<>,
                       NodePool::Allocator<std::pair<const uintptr_t, Interval>>>;
  // Nodes that reserve() leaves for a later remove_to() or note_unmapped(), which split two intervals at
  // most.
  static constexpr size_t kSpare = 16;

  // Calls each(MemoryRange) for each run of `range` without an interval that `counts`.
  template <class Counts, class Each>
  void each_run_between(MemoryRange range, Counts counts, Each each) const {
    uintptr_t at = range.addr;
    for (auto it = first_in(range); it != intervals_.end() && it->first < range.end(); ++it) {
      if (!counts(it->second)) continue;
      if (at < it->first) each(MemoryRange{at, it->first - at});
      at = it->second.end;
    }
    if (at < range.end()) each(MemoryRange{at, range.end() - at});
  }
  // The first interval that ends after the beginning of `range`.
  Map::const_iterator first_in(MemoryRange range) const noexcept {
    auto it = intervals_.upper_bound(range.addr);
    if (it != intervals_.begin() && std::prev(it)->second.end > range.addr) --it;
    return it;
  }
  void set_aside(Map::iterator first, Map::iterator last) noexcept;
  Map::iterator split(uintptr_t at) noexcept;
  void join(MemoryRange range) noexcept;

  NodePool* pool_;
  uint64_t reports_ = kNoStamp + 1;
  uint64_t left_bytes_ = 0;
  Map intervals_;
};

}  // namespace hydrant
