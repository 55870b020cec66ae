// Memory that was removed (MADV_DONTNEED and the like) by calls that may not have returned: the kernel
// reports a removal before the pages are dropped, and never reports the end, so a registration made now
// may be of old pages.
//
// Disjoint ranges in order, each with the number of the newest removal in it. Bounded: when it is full,
// neighbours become one, which is safe and only keeps more memory uncached. Guarded by its owner.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class RemovedRanges {
 public:
  [[nodiscard]] bool map(size_t most) noexcept { return entries_.map(most); }

  // The number of a removal with an unknown caller: it is over when other memory is mapped there.
  static constexpr uint64_t kCallerUnknown = UINT64_MAX;
  void add(MemoryRange range, uint64_t number) noexcept;
  // Other memory is mapped there now, or none.
  void forget(MemoryRange range) noexcept { forget_where(range, false); }
  // The same, but only of removals with an unknown caller.
  void forget_unknown(MemoryRange range) noexcept { forget_where(range, true); }
  // The newest removal that overlaps the range; 0 if none does.
  uint64_t newest(MemoryRange range) const noexcept;
  // The first part of the range that was removed; its length is 0 if there is none.
  MemoryRange first_in(MemoryRange range) const noexcept;
  // The callers of all removals up to this number have returned.
  void forget_up_to(uint64_t number) noexcept;

  size_t size() const noexcept { return count_; }
  void clear() noexcept { count_ = 0; }

 private:
  struct Entry {
    MemoryRange range;
    uint64_t number;
  };
  size_t first_ending_after(uintptr_t addr) const noexcept;
  void forget_where(MemoryRange range, bool only_unknown) noexcept;
  void replace(size_t from, size_t to, const Entry* with, size_t n) noexcept;
  void join_closest() noexcept;

  MappedArray<Entry> entries_;
  size_t count_ = 0;
};

}  // namespace hydrant
