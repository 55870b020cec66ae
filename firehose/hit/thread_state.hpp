// Per-thread state of the cache: the domains that a thread uses, its hold counts and translation tables, and
// their end with the thread.
//
// Locks: registry_mutex() guards the domain slots and the ends of threads and domains (level 1); a domain's
// own mutex guards its list of ThreadDomains (level 2).
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/hit/hit_context.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

namespace hydrant {

struct ThreadDomain;

// The threads that use a domain, for the end of a thread.
class DomainThreads {
 public:
  // Adds a thread's holds and counters to the domain's and forgets it. Under registry_mutex().
  virtual void detach(ThreadDomain& state) noexcept = 0;

 protected:
  ~DomainThreads() = default;
};

constexpr uint32_t kMaxClientDomains = 64;
// Includes the domains for the memory of peers, one each (peer_cache.hpp), in the places behind the clients'.
constexpr uint32_t kMaxDomains = 2048;

// Counters that only their thread writes; relaxed, because readers want a number, not an order.
struct ThreadCounters {
  std::atomic<uint64_t> refills{0}, misses{0}, not_ready{0}, refusals{0}, waits{0},
      slow_releases{0}, checked_hits{0};

  static void add(std::atomic<uint64_t>& counter, uint64_t n = 1) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

// The state of a thread in one domain. Created by the thread at its first slow call there, and freed by it
// alone, so that its context never points to freed memory: when it ends (its holds stay, folded into the
// domain), or at its next slow call anywhere after the domain has ended.
//
// Thread safety: fields are the owner's, except that counts, hits and counters may be read by any thread that
// holds the domain's mutex, and the links are guarded by that mutex.
struct ThreadDomain {
  DomainThreads* owner = nullptr;
  Thread* thread = nullptr;
  uint64_t handle = 0;
  ThreadDomain* next = nullptr;      // in HoldCounts, or in Thread::ended
  ThreadDomain* previous = nullptr;  // in HoldCounts

  HoldCount* counts = nullptr;  // by RegionIndex
  ThreadCounters counters;
  std::atomic<uint64_t>& hits() const noexcept { return hits_before(counts); }
  // The hits since its last call. Owner only.
  uint64_t take_new_hits() noexcept {
    const uint64_t now =
        hits().load(std::memory_order_relaxed) + counters.refills.load(std::memory_order_relaxed);
    return now - std::exchange(hits_taken, now);
  }
  uint64_t hits_taken = 0;

  // Translation table: 2^k slots, indexed by address bits from `shift` up. See table_*() below.
  MappedArray<const RegionSlot*> table;
  uint32_t shift = 0;
  uint32_t conflicts = 0, crowded = 0;
  std::atomic<uint64_t> table_bytes{0};  // for statistics

  // False when memory is refused. `granule_shift` and up: address bits that distinguish regions.
  [[nodiscard]] bool set_up(const RegionSlot* null_slot, uint32_t max_slots,
                            uint32_t granule_shift) noexcept;
  // Enters that `slot` covers `addr`. May grow the table up to max_bytes. Owner only.
  void remember(uintptr_t addr, const RegionSlot* slot, const RegionSlot* null_slot,
                size_t max_bytes) noexcept;
  // The second place where a slot for `addr` may be: regions whose addresses collide in the first.
  const RegionSlot* second_choice(uintptr_t addr) const noexcept;
  uint64_t mask() const noexcept { return (uint64_t{table.size()} - 1) << shift; }
  uint64_t scale() const noexcept { return uint64_t{1} << (64 - (shift - 3)); }

 private:
  MappedArray<HoldCount> counts_memory_;
  bool resize_table(const RegionSlot* null_slot, size_t entries, uint32_t new_shift) noexcept;
  size_t second_index(uintptr_t addr) const noexcept;
};

// The state of a thread of the process.
struct Thread {
  // By domain slot. Written by the owner, and cleared by the thread that ends the domain.
  std::atomic<ThreadDomain*> domains[kMaxDomains] = {};
  ThreadDomain* current = nullptr;  // in the context, or last there; owner only
  // States of domains that have ended, for the owner to free. Pushed under registry_mutex().
  std::atomic<ThreadDomain*> ended{nullptr};
};

Mutex& registry_mutex() noexcept;

// The calling thread's state, created at need. Null after the thread's destructor ran, or when memory is
// refused: callers then use the domain's shared counts. Takes registry_mutex() when it creates.
Thread* this_thread() noexcept HYDRANT_EXCLUDES(registry_mutex());

// Makes `state` the one in the calling thread's hit context.
void load_hit_context(ThreadDomain& state) noexcept;

// Frees the states of ended domains. Owner only.
void free_ended_states(Thread& thread) noexcept HYDRANT_EXCLUDES(registry_mutex());

// In the child of a fork: forget all threads but the caller, whose state is dropped too. No lock needed.
void forget_threads_in_child() noexcept;

}  // namespace hydrant
