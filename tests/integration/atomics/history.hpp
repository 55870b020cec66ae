// Histories of one word, and a search for an order of their operations that explains all results:
// linearisability. An operation takes effect at one instant between its call and its completion.
#pragma once

#include "tests/integration/atomics/model_atomic.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

struct HistoryEntry {
  uint64_t called = 0;     // ns
  uint64_t completed = 0;  // ns
  gex_OP_t op = 0;
  uint64_t operand1 = 0;
  uint64_t operand2 = 0;
  uint64_t old = 0;  // returned by it, if it returns the old value
};

class HistorySearch {
 public:
  // At most 64 entries.
  HistorySearch(std::vector<HistoryEntry> entries, uint64_t first) : entries_(std::move(entries)) {
    is_explained_ = search(0, first);
  }
  bool is_explained() const { return is_explained_; }

 private:
  // `done`: the operations that have taken effect, and left `value`.
  bool search(uint64_t done, uint64_t value) {
    if (done == all()) return true;
    if (!seen_.emplace(done, value).second) return false;
    uint64_t limit = UINT64_MAX;  // an operation that was called later cannot be next
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!is_in(done, i)) limit = std::min(limit, entries_[i].completed);
    }
    for (size_t i = 0; i < entries_.size(); ++i) {
      const HistoryEntry& each = entries_[i];
      if (is_in(done, i) || each.called > limit) continue;
      if ((each.op & kReturningOld) != 0 && each.old != value) continue;
      if (search(done | uint64_t{1} << i, model_of(each.op, value, each.operand1, each.operand2)))
        return true;
    }
    return false;
  }
  uint64_t all() const { return entries_.empty() ? 0 : UINT64_MAX >> (64 - entries_.size()); }
  static bool is_in(uint64_t set, size_t i) { return (set >> i & 1) != 0; }

  std::vector<HistoryEntry> entries_;
  std::set<std::pair<uint64_t, uint64_t>> seen_;
  bool is_explained_ = false;
};
