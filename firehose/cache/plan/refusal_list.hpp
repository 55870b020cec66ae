// The last few refusals of the registrar. The planner queries them at each miss, under the domain's mutex.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

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
