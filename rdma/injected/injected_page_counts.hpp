// Counts the registrations that lock each page, as steps: each step has one count up to the next address.
// mlock does not nest; these counts make pins nest.
//
// Threads: one at a time. Allocates. Cost: O(log n + steps inside the range).
#pragma once

#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace hydrant {

class InjectedPageCounts {
 public:
  // Requires: range.valid(), not reaching the top of the address space.
  void add(MemoryRange range) {
    const auto end = cut(range.end());
    for (auto it = cut(range.addr); it != end; ++it) ++it->second;
  }

  // Undoes one add(); calls visit(MemoryRange) for each stretch that no other range covers.
  template <class Visit>
  void remove(MemoryRange range, Visit visit) {
    const auto end = cut(range.end());
    for (auto it = cut(range.addr); it != end;) {
      const uintptr_t from = it->first;
      const bool is_last = --it->second == 0;
      ++it;
      if (is_last) visit(MemoryRange{from, it->first - from});
    }
    join(range);
  }

  size_t steps() const noexcept { return counts_.size(); }

 private:
  using Map = std::map<uintptr_t, uint64_t>;

  // Ensures that a step begins at `at`.
  Map::iterator cut(uintptr_t at) {
    const auto after = counts_.upper_bound(at);
    const uint64_t count = after == counts_.begin() ? 0 : std::prev(after)->second;
    return counts_.try_emplace(at, count).first;
  }
  // Removes redundant steps, which have the same count as their predecessors.
  void join(MemoryRange range) {
    auto it = counts_.find(range.addr);
    uint64_t before = it == counts_.begin() ? 0 : std::prev(it)->second;
    while (it != counts_.end() && it->first <= range.end()) {
      const uint64_t count = it->second;
      it = count == before ? counts_.erase(it) : std::next(it);
      before = count;
    }
  }

  Map counts_;
};

}  // namespace hydrant
