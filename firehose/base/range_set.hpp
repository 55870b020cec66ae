// Two small sets of address ranges, both read on misses only and guarded by the domain's mutex.
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

// Ranges that the registrar refused, with the refused rights: a repeated request fails at once. Bounded; the
// oldest entry makes room. A request is known to be refused if it contains a refused range and requests all
// rights that were refused there: fewer rights may still be granted. An entry lapses after kLifeNs, because
// no event reports memory that is mapped or made writable later.
class RefusalList {
 public:
  static constexpr size_t kMax = 128;
  static constexpr uint64_t kLifeNs = 1'000'000'000;

  void add(MemoryRange range, Access access, uint64_t now_ns) noexcept;
  bool refuses(MemoryRange range, Access access, uint64_t now_ns) const noexcept;
  // Whether a refusal that has not lapsed is about a part of `range`.
  bool overlaps(MemoryRange range, uint64_t now_ns) const noexcept;
  bool empty() const noexcept { return count_ == 0; }
  // Forgets what overlaps: the memory there is new.
  void forget(MemoryRange range) noexcept;
  void clear() noexcept { count_ = next_ = 0; }

 private:
  struct Entry {
    MemoryRange range;
    Access access;
    uint64_t until_ns;
  };
  Entry entries_[kMax];
  size_t count_ = 0;
  size_t next_ = 0;
};

}  // namespace hydrant
