// The memory that the client vouches for: it will invalidate before the memory is released.
//
// Invariant: whole pages, disjoint, merged when they touch.
#pragma once

#include "firehose/base/range_set.hpp"
#include "firehose/cache/region/cache_lock.hpp"

namespace hydrant {

class VouchedRanges {
 public:
  [[nodiscard]] bool map() noexcept { return ranges_.map(kMax); }
  // False when there are too many separate ranges.
  [[nodiscard]] bool add(const CacheLock&, MemoryRange pages) noexcept {
    return ranges_.add(pages);
  }
  [[nodiscard]] bool remove(const CacheLock&, MemoryRange pages) noexcept {
    return ranges_.remove(pages);
  }
  bool covers(const CacheLock&, MemoryRange range) const noexcept { return ranges_.covers(range); }
  size_t size(const CacheLock&) const noexcept { return ranges_.size(); }

 private:
  static constexpr size_t kMax = 65536;
  RangeSet ranges_;
};

}  // namespace hydrant
