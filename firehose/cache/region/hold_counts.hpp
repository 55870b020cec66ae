// The holds of all regions: a count per thread and region, and a shared count for threads that ended or
// have no state.
//
// Invariant: for each region the counts of the attached threads and the shared count add up, modulo 2^32,
// to the number of holds. Only the sum has a meaning: a thread may release a pin that another thread took.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/region/region_store.hpp"
#include "firehose/hit/thread_state.hpp"

namespace hydrant {

class HoldCounts {
 public:
  explicit HoldCounts(RegionStore& store) noexcept : store_(store) {}
  [[nodiscard]] bool map() noexcept { return shared_.map(store_.count()); }

  void attach(const CacheLock&, ThreadDomain& state) noexcept;
  // Adds the thread's holds to the shared counts, and forgets the thread.
  void detach(const CacheLock&, ThreadDomain& state) noexcept;
  ThreadDomain* first_thread(const CacheLock&) const noexcept { return threads_; }
  uint32_t threads(const CacheLock&) const noexcept { return thread_count_; }

  // Takes a hold without a check: a thread that closes the region needs the mutex, and sees the hold later.
  // Null: in the shared count.
  void take(const CacheLock&, ThreadDomain* thread, RegionIndex region) noexcept {
    if (thread != nullptr) {
      post_hold(thread->counts[region]);
    } else {
      shared_[region].fetch_add(1, std::memory_order_relaxed);
    }
  }
  // Drops a hold and returns the number left.
  uint32_t drop(const CacheLock&, ThreadDomain* thread, RegionIndex region) noexcept;

  // The sum, approximate unless the region was shut before the last fence.
  uint32_t sum(const CacheLock&, RegionIndex region) const noexcept;
  // The same for several regions, which costs little more than one where there are many threads.
  void sum(const CacheLock&, const RegionIndex* regions, size_t n, uint32_t* sums) const noexcept;
  // The exact sum of a region that was shut before the last fence. A negative sum proves that a pin was
  // released more often than it was taken: the region is marked, and the sum becomes 0.
  uint32_t settled(const CacheLock& lock, RegionIndex region) noexcept {
    return correct(lock, region, sum(lock, region));
  }
  void settled(const CacheLock&, const RegionIndex* regions, size_t n, uint32_t* sums) noexcept;
  uint32_t correct(const CacheLock&, RegionIndex region, uint32_t sum) noexcept;

  // A region whose gate was never open has holds in the shared count alone, from this moment on.
  void add_unopened(const CacheLock&, RegionIndex region) noexcept;
  uint32_t sum_of_unopened(const CacheLock&, RegionIndex region) const noexcept;

  // Forgets the threads, which exist in the parent only.
  void reset_in_child(const CacheLock&) noexcept;

 private:
  RegionStore& store_;
  ThreadDomain* threads_ = nullptr;
  uint32_t thread_count_ = 0;
  MappedArray<HoldCount> shared_;
};

}  // namespace hydrant
