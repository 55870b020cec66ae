// Finds the ranges that are locked already in the memory that a pin of the mlock registrar is to lock.
//
// The kernel has two kinds of locks: mlock() brings in the pages of a mapping, and those that it gains later;
// mlock2(MLOCK_ONFAULT) does not. The later call replaces the kind. Where it covers a part of a mapping, this
// becomes a mapping of its own until it is unlocked. So what the program has locked is not locked
// again. For that, one has to know that all of a range is locked. The kernel tells only whether any page of
// a range is (MlockCalls::find_lock); but a mapping, or a page, is locked in whole or not at all.
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

  // Adds the parts of `range` that are locked, as whole where the kernel tells mappings (Linux 6.11) or where
  // 256 questions suffice, some 100 pages. Where locked and other pages alternate too often, the last part
  // reaches over what lies between. Requires: `range` begins at or above the end of what was searched before.
  // Cost: one question (0.3 us) if nothing is locked; else 3 us a mapping, or 80 us.
  void find(const MlockCalls& calls, MemoryRange range, size_t page_bytes) noexcept;

  size_t size() const noexcept { return n_; }
  const Part* begin() const noexcept { return parts_; }
  const Part* end() const noexcept { return parts_ + n_; }

 private:
  static constexpr size_t kMaxParts = 64;

  void add(MemoryRange range, bool whole) noexcept;
  void halve(const MlockCalls& calls, MemoryRange range, size_t page_bytes, int questions) noexcept;

  Part parts_[kMaxParts];
  size_t n_ = 0;
};

}  // namespace hydrant
