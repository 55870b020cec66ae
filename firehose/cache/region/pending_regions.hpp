// Registrations under way.
//
// Invariant: lists exactly the regions in state kPending. A region whose memory goes away meanwhile is
// poisoned: its registration is undone when it completes.
#pragma once

#include "firehose/cache/region/cache_lock.hpp"
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {

class PendingRegions {
 public:
  explicit PendingRegions(RegionStore& store) noexcept : store_(store) {}

  void add(const CacheLock& lock, RegionIndex region) noexcept {
    queue_.push(store_.infos(lock), region);
  }
  // The registration ended: wakes the threads that wait for it.
  void remove(const CacheLock& lock, RegionIndex region) noexcept {
    queue_.remove(store_.infos(lock), region);
    ended_.notify_all();
  }
  // The pending region that will serve the request; kNoRegion if there is none.
  RegionIndex find(const CacheLock& lock, MemoryRange range, Access need) const noexcept {
    const auto& infos = store_.infos(lock);
    for (RegionIndex r = queue_.front(); r != kNoRegion; r = infos[r].next) {
      if (!infos[r].poisoned && infos[r].range.covers(range) && includes(infos[r].access, need))
        return r;
    }
    return kNoRegion;
  }
  bool any_overlap(const CacheLock& lock, MemoryRange range) const noexcept {
    const auto& infos = store_.infos(lock);
    for (RegionIndex r = queue_.front(); r != kNoRegion; r = infos[r].next) {
      if (infos[r].range.overlaps(range)) return true;
    }
    return false;
  }
  void poison(const CacheLock& lock, MemoryRange range) noexcept {
    auto& infos = store_.infos(lock);
    for (RegionIndex r = queue_.front(); r != kNoRegion; r = infos[r].next) {
      if (infos[r].range.overlaps(range)) infos[r].poisoned = true;
    }
  }
  void poison_all(const CacheLock& lock) noexcept {
    auto& infos = store_.infos(lock);
    for (RegionIndex r = queue_.front(); r != kNoRegion; r = infos[r].next)
      infos[r].poisoned = true;
  }
  // Waits until some registration has ended; false at the deadline.
  bool wait_until(const CacheLock& lock, uint64_t deadline_ns) noexcept {
    return lock.wait_until(ended_, deadline_ns);
  }
  void reset_in_child(const CacheLock&) noexcept {
    queue_.clear();
    ended_.reset_in_child();
  }

 private:
  RegionStore& store_;
  RegionQueue queue_;
  CondVar ended_;
};

}  // namespace hydrant
