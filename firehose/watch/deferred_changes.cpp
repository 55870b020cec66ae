// Keeps what the reader could not enter (change_reader.cpp), without losing a removal when it is full.
#include "firehose/watch/deferred_changes.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// Several of the reader's polls while changes are deferred.
constexpr int kCatchUpNaps = 100;
constexpr long kCatchUpNapNs = 50'000;

}  // namespace

void DeferredChanges::push(const MemoryChange& change, uint64_t removal) noexcept {
  if (count_ < kMax) {
    entries_[count_++] = {change, removal};
  } else if (change.kind == MemoryChange::Kind::kRemoved) {
    // The last removal grows to cover both, which keeps more memory from being cached.
    Entry& last = entries_[kMax - 1];
    if (last.change.kind == MemoryChange::Kind::kRemoved) {
      const uintptr_t first = std::min(last.change.range.addr, change.range.addr);
      const uintptr_t end = std::max(last.change.range.end(), change.range.end());
      last = {{MemoryChange::Kind::kRemoved, {first, end - first}, {}}, removal};
    } else {
      last = {change, removal};
    }
  }
  // Before any cache forgets the range: a later miss must not rely on the sets.
  any_.store(true, std::memory_order_release);
}

bool DeferredChanges::wait_until_taken() const noexcept {
  for (int naps = 0; any(); ++naps) {
    if (naps == kCatchUpNaps) return false;
    uncancelled::sleep_ns(kCatchUpNapNs);
  }
  return true;
}

}  // namespace hydrant
