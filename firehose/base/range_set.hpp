// A small set of address ranges, which its owner guards.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Disjoint ranges, sorted, merged when they touch: what the client vouched for.
class RangeSet {
 public:
  [[nodiscard]] bool map(size_t most) noexcept { return ranges_.map(most); }
  // False when the set is full.
  [[nodiscard]] bool add(MemoryRange range) noexcept;
  [[nodiscard]] bool remove(MemoryRange range) noexcept;
  bool covers(MemoryRange range) const noexcept;
  // The first range that reaches past `from`; false if there is none.
  bool next(uintptr_t from, MemoryRange* out) const noexcept;
  size_t size() const noexcept { return count_; }
  bool overlaps(MemoryRange range) const noexcept;
  // True if one of the ranges lies in this range as a whole.
  bool has_any_inside(MemoryRange range) const noexcept;
  void clear() noexcept { count_ = 0; }

 private:
  size_t first_touching(uintptr_t addr) const noexcept;
  MappedArray<MemoryRange> ranges_;
  size_t count_ = 0;
};

}  // namespace hydrant
