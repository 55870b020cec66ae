// The threads that use a domain: their states are made at their first slow call and end with the thread or
// the domain.
//
// Invariant: a thread's state is attached to the hold counts from its publication in Thread::domains to its
// removal from there. Only the thread itself frees it.
#pragma once

#include "firehose/cache/coherence/watch_link.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/cache/region/cache_totals.hpp"
#include "firehose/cache/region/hold_counts.hpp"

namespace hydrant {

class Invalidator;

class ThreadStates final : public DomainThreads {
 public:
  struct Parts {
    const DomainConfig& config;
    uint64_t handle;
    Mutex& mu;
    RegionStore& store;
    HoldCounts& holds;
    CacheTotals& totals;
    WatchLink& watch;
    Invalidator& invalidator;
  };
  explicit ThreadStates(const Parts& parts) noexcept : parts_(parts) {}

  // The calling thread's state, in the hit context; null for a thread past its end or without memory.
  ThreadDomain* current_thread_state() noexcept;
  // Enters in the thread's table that the slot covers the address.
  void remember(ThreadDomain& thread, uintptr_t addr, const RegionSlot* slot) const noexcept {
    thread.remember(addr, slot, &parts_.store.slot(kNoRegion), parts_.config.thread_table_bytes);
  }
  void detach(ThreadDomain& state) noexcept override;
  // The domain ends: the threads free their states later. Under registry_mutex().
  void detach_all() noexcept;

  uint64_t handle() const noexcept { return parts_.handle; }

 private:
  ThreadDomain* create(Thread& thread) noexcept;

  const Parts parts_;
};

}  // namespace hydrant
