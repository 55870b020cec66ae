// The regions that are being unpinned: the last state of a region before its slot is free again.
//
// Invariant: a region is listed from begin() to end(), and belongs meanwhile to the thread that unpins it,
// which holds no mutex. So the list uses links of its own: the queues belong to those threads.
#pragma once

#include "firehose/cache/region/region_store.hpp"

#include <cstdint>

namespace hydrant {

class UnpinsUnderWay {
 public:
  explicit UnpinsUnderWay(RegionStore& store) noexcept : store_(store) {}

  // Requires: the region is in no table, no queue and no policy, and not held.
  void begin(const CacheLock&, RegionIndex region, RegionQueue* retired) noexcept;
  // Ends the unpinning of a region of such a queue, unless the child of a fork has forgotten it.
  void end(const CacheLock&, RegionIndex region) noexcept;
  // Waits until some region was unpinned; false at the deadline.
  bool wait(const CacheLock& lock, uint64_t deadline_ns) noexcept;
  // True if part of the range is being unpinned. Cost: linear in the regions that are.
  bool any_overlap(const CacheLock&, MemoryRange range) const noexcept;
  void reset_in_child(const CacheLock&) noexcept {
    first_ = kNoRegion;
    waiting_ = 0;
    unpinned_.reset_in_child();
  }

 private:
  RegionStore& store_;
  RegionIndex first_ = kNoRegion;
  uint32_t waiting_ = 0;  // threads in wait()
  CondVar unpinned_;
};

}  // namespace hydrant
