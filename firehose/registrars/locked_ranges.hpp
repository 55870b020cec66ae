// Finds the ranges that are locked already in the memory that a pin of the mlock registrar is to lock.
//
// The kernel has two kinds of locks: mlock() brings in the pages of a mapping, and those that it gains later;
// mlock2(MLOCK_ONFAULT) does not. The later call replaces the kind. If it covers a part of a mapping, this
// part becomes a mapping of its own until it is unlocked. So memory that the program has locked is not locked
// again. That requires proof that all of a range is locked. The kernel only reports whether any page of a
// range is (MlockCalls::find_lock); but a mapping, or a page, is locked in whole or not at all.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/registrars/mlock_calls.hpp"

#include <cstddef>

namespace hydrant {

class LockedRanges {
 public:
  struct Part {
    MemoryRange range;
    bool whole;  // every page is locked; otherwise one at least
  };

  // Adds the locked parts of `range`. They are known to be locked in whole if the kernel reports mappings
  // (Linux 6.11) or if 256 queries are enough, for some 100 pages. If locked and other pages alternate too
  // often, the last part also covers the pages in between. Requires: `range` begins at or above the end of
  // what was searched before. Cost: one query (0.3 us) if no page is locked; else 3 us a mapping, or 80 us.
  void find(const MlockCalls& calls, MemoryRange range, size_t page_bytes) noexcept;

  size_t size() const noexcept { return n_; }
  const Part* begin() const noexcept { return parts_; }
  const Part* end() const noexcept { return parts_ + n_; }

 private:
  static constexpr size_t kMaxParts = 64;

  void add(MemoryRange range, bool whole) noexcept;
  void halve(const MlockCalls& calls, MemoryRange range, size_t page_bytes, int queries) noexcept;

  Part parts_[kMaxParts];
  size_t n_ = 0;
};

}  // namespace hydrant
