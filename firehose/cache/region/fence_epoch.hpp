// The number of fences that a domain has issued.
//
// Invariant: it advances after a fence. So a gate that was shut, or a slot made blank, in an earlier
// epoch has a fence behind it: the holds of its region may be summed.
#pragma once

#include "firehose/cache/region/cache_lock.hpp"
#include "firehose/hit/asymmetric_fence.hpp"

#include <cstdint>

namespace hydrant {

class FenceEpoch {
 public:
  uint32_t now(const CacheLock&) const noexcept { return epoch_; }
  uint32_t fences(const CacheLock&) const noexcept { return epoch_ - 1; }
  void fence(const CacheLock&) noexcept {
    asymmetric_fence::heavy();
    ++epoch_;
  }
  // In the child of a fork, whose only thread needs no fence.
  void advance(const CacheLock&) noexcept { ++epoch_; }

 private:
  uint32_t epoch_ = 1;
};

}  // namespace hydrant
