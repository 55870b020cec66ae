// Registrations under way.
//
// Invariant: lists exactly the regions in state kPending. A region whose memory is released meanwhile is
// poisoned: its registration is undone when it completes.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/region/cache_lock.hpp"
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {

// Each miss searches the list under the mutex, and each thread that registers has an entry in it. So the
// ranges stand side by side: a search reads a cache line for every two or three, and one RegionInfo.
class PendingRegions {
 public:
  explicit PendingRegions(RegionStore& store) noexcept : store_(store) {}
  // Reserves address space. False when refused.
  [[nodiscard]] bool map() noexcept { return entries_.map(store_.count()); }

  // Requires: its range is set. If it changes while the region is pending (a peer may grant more), the former
  // range counts here.
  void add(const CacheLock& lock, RegionIndex region) noexcept {
    RegionInfo& info = store_.infos(lock)[region];
    info.place = count_;
    entries_[count_++] = {info.range, region};
  }
  // The registration ended: wakes the threads that wait for it.
  void remove(const CacheLock& lock, RegionIndex region) noexcept {
    auto& infos = store_.infos(lock);
    const uint32_t place = infos[region].place;
    entries_[place] = entries_[--count_];
    infos[entries_[place].region].place = place;
    if (waiting_ != 0) ended_.notify_all();
  }
  // The pending region that will serve the request; kNoRegion if there is none.
  RegionIndex find(const CacheLock& lock, MemoryRange range, Access need) const noexcept {
    const auto& infos = store_.infos(lock);
    for (uint32_t i = 0; i < count_; ++i) {
      if (!entries_[i].range.covers(range)) continue;
      const RegionInfo& info = infos[entries_[i].region];
      if (!info.poisoned && !info.uncached && includes(info.access, need))
        return entries_[i].region;
    }
    return kNoRegion;
  }
  bool any_overlap(const CacheLock&, MemoryRange range) const noexcept {
    for (uint32_t i = 0; i < count_; ++i) {
      if (entries_[i].range.overlaps(range)) return true;
    }
    return false;
  }
  void poison(const CacheLock& lock, MemoryRange range) noexcept {
    for (uint32_t i = 0; i < count_; ++i) {
      if (entries_[i].range.overlaps(range)) store_.infos(lock)[entries_[i].region].poisoned = true;
    }
  }
  void poison_all(const CacheLock& lock) noexcept {
    for (uint32_t i = 0; i < count_; ++i) store_.infos(lock)[entries_[i].region].poisoned = true;
  }
  // Waits until some registration has ended; false at the deadline.
  bool wait_until(const CacheLock& lock, uint64_t deadline_ns) noexcept {
    ++waiting_;
    const bool notified = lock.wait_until(ended_, deadline_ns);
    --waiting_;
    return notified;
  }
  void reset_in_child(const CacheLock&) noexcept {
    count_ = waiting_ = 0;
    ended_.reset_in_child();
  }

 private:
  struct Entry {
    MemoryRange range;
    RegionIndex region;
  };
  RegionStore& store_;
  MappedArray<Entry> entries_;
  uint32_t count_ = 0;
  uint32_t waiting_ = 0;  // threads in wait_until()
  CondVar ended_;
};

}  // namespace hydrant
