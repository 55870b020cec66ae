// Sums the holds that all threads have on a region. Eviction, invalidation and the reuse of slots call it
// after a fence.
#include "firehose/cache/region/hold_counts.hpp"

namespace hydrant {

void HoldCounts::attach(const CacheLock&, ThreadDomain& state) noexcept {
  state.next = threads_;
  if (threads_ != nullptr) threads_->previous = &state;
  threads_ = &state;
  ++thread_count_;
}

void HoldCounts::detach(const CacheLock& lock, ThreadDomain& state) noexcept {
  (state.previous == nullptr ? threads_ : state.previous->next) = state.next;
  if (state.next != nullptr) state.next->previous = state.previous;
  --thread_count_;
  for (RegionIndex i = 0; i <= store_.high(lock); ++i) {
    const uint32_t holds = state.counts[i].load(std::memory_order_relaxed);
    if (holds == 0) continue;
    HoldCount& shared = shared_[i];
    shared.store(shared.load(std::memory_order_relaxed) + holds, std::memory_order_relaxed);
    RegionInfo& info = store_.infos(lock)[i];
    if (info.is_unopened) info.shared_base += holds;
  }
}

uint32_t HoldCounts::drop(const CacheLock& lock, ThreadDomain* thread,
                          RegionIndex region) noexcept {
  if (thread != nullptr) {
    drop_hold(thread->counts[region]);
  } else {
    shared_[region].fetch_sub(1, std::memory_order_release);
  }
  return store_.infos(lock)[region].is_unopened ? sum_of_unopened(lock, region) : sum(lock, region);
}

uint32_t HoldCounts::sum(const CacheLock&, RegionIndex region) const noexcept {
  uint32_t sum = shared_[region].load(std::memory_order_relaxed);
  for (const ThreadDomain* t = threads_; t != nullptr; t = t->next) {
    // Pairs with the release in drop_hold(): uses of the memory end before it is unpinned.
    sum += t->counts[region].load(std::memory_order_acquire);
  }
  return sum;
}

// Threads in the outer loop: slots are used in order, so that one cache line of a thread's counts has those
// of up to 16 regions. With a thousand threads the lines are the cost of a sum.
void HoldCounts::sum(const CacheLock&, const RegionIndex* regions, size_t n,
                     uint32_t* sums) const noexcept {
  for (size_t i = 0; i < n; ++i) sums[i] = shared_[regions[i]].load(std::memory_order_relaxed);
  for (const ThreadDomain* t = threads_; t != nullptr; t = t->next) {
    // Acquire: as for one region.
    for (size_t i = 0; i < n; ++i) sums[i] += t->counts[regions[i]].load(std::memory_order_acquire);
  }
}

void HoldCounts::settled(const CacheLock& lock, const RegionIndex* regions, size_t n,
                         uint32_t* sums) noexcept {
  sum(lock, regions, n, sums);
  for (size_t i = 0; i < n; ++i) sums[i] = correct(lock, regions[i], sums[i]);
}

uint32_t HoldCounts::correct(const CacheLock& lock, RegionIndex region, uint32_t sum) noexcept {
  const auto surplus = static_cast<int32_t>(sum);
  if (surplus >= 0) return sum;
  // Every successful post is in the sum, and only drops can be missing: a negative sum is no race. A
  // thread's count is written by that thread alone, so the shared one takes the difference.
  shared_[region].fetch_sub(sum, std::memory_order_relaxed);
  store_.infos(lock)[region].over_released = true;
  return 0;
}

void HoldCounts::add_unopened(const CacheLock& lock, RegionIndex region) noexcept {
  RegionInfo& info = store_.infos(lock)[region];
  info.is_unopened = true;
  info.shared_base = shared_[region].load(std::memory_order_relaxed);
}

uint32_t HoldCounts::sum_of_unopened(const CacheLock& lock, RegionIndex region) const noexcept {
  return shared_[region].load(std::memory_order_acquire) - store_.infos(lock)[region].shared_base;
}

void HoldCounts::reset_in_child(const CacheLock&) noexcept {
  threads_ = nullptr;
  thread_count_ = 0;
  shared_.clear();
}

}  // namespace hydrant
