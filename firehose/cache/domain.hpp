// A domain: one cache over one registrar. The facade of the cache: it owns the parts (cache_parts.hpp) and
// the operations over them, and routes each call to one of those.
//
// Where to read on: a hit in hit_path.cpp and hold.hpp; a miss, top to bottom, in domain_miss.cpp; release,
// invalidation and flush in domain_release.cpp; several regions at once in span_pins.cpp;
// deferred pins in deferred_pins.cpp; remote pins in domain_exports.cpp (target) and domain_peer_regions.cpp
// (initiator); set-up, fork and end in domain.cpp. States and invariants of regions: region_info.hpp and
// docs/pin_cache.md.
//
// Thread safety: every public method from any thread. The parts' mutex is never held while the registrar, a
// callback or malloc is called, nor while a thread waits for another thread's hold.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/cache/deferred_pins.hpp"
#include "firehose/cache/domain_exports.hpp"
#include "firehose/cache/domain_miss.hpp"
#include "firehose/cache/domain_peer_regions.hpp"
#include "firehose/cache/domain_release.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/hit/slot_arena.hpp"

#include <memory>

namespace hydrant {

class Domain {
 public:
  using MissPolicy = hydrant::MissPolicy;
  using PeerPin = hydrant::PeerPin;
  using Grant = PeerGrant;
  using ExportInfo = ExportView::ExportInfo;

  // Requires: CachePolicies::complete() was true.
  Domain(const DomainConfig& config, std::unique_ptr<Registrar> registrar, CachePolicies policies,
         uint64_t handle) noexcept;
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  static constexpr uint32_t slots_for(uint32_t max_regions) noexcept {
    return CacheParts::slots_for(max_regions);
  }

  // --- set-up and end (domain.cpp) ---
  // Reserves the tables. kResource when memory is refused.
  Status set_up() noexcept;
  // Subscribes to the monitor. Requires: watch is not client, before the domain is published.
  Status start_watching() noexcept;
  void stop_watching() noexcept;
  // Adds a registration of the client's own. Requires: before the domain is published.
  Status add_prepinned(MemoryRange range, Access access, const void* key) noexcept;
  // Cancels deferred pins, unpins if `unpin`, detaches all threads. Requires: registry_mutex() not held, no
  // thread is inside a call.
  void shut_down(bool unpin) noexcept;

  uint64_t handle() const noexcept { return parts_.threads.handle(); }
  const DomainConfig& config() const noexcept { return parts_.config; }
  Registrar& registrar() const noexcept { return *parts_.registrar; }
  const SlotArena& arena() const noexcept { return arena_; }

  // --- pins (domain_pins.cpp) ---
  // Holds one region that covers `range`, for the caller. *out is unchanged on failure.
  // The deadline (now_ns()) bounds the wait for another thread's registration of the same memory.
  // `admission`: the answer that the first attempt of this use got.
  Status pin(MemoryRange range, Access need, MissPolicy policy, const RegionSlot** out,
             uint64_t deadline_ns = UINT64_MAX,
             std::optional<Admission>* admission = nullptr) noexcept;
  Status pin_until(MemoryRange range, Access need, uint64_t timeout_ns,
                   const RegionSlot** out) noexcept;
  Status pin_many(const hydrant_range_t* ranges, size_t n, Access need,
                  const RegionSlot** out) noexcept {
    return spans_.pin_many(ranges, n, need, out);
  }
  Status pin_partial(MemoryRange range, Access need, const RegionSlot** out) noexcept;
  Status pin_async(MemoryRange range, Access need, hydrant_pinned_fn done, void* context) noexcept;
  // The releases that the hit path cannot do: other context, dead region, span. Requires: a slot of the
  // arena.
  Status release(const RegionSlot* slot) noexcept;

  Status invalidate(MemoryRange range) noexcept;
  Status vouch(MemoryRange range, bool on) noexcept;
  // HYDRANT_COVERAGE_*: what a pin of this range would get now.
  Status coverage(MemoryRange range, uint32_t* out) noexcept;
  int poll() noexcept;
  void flush() noexcept { releases_.flush(); }

  // Parts of a pin: 1, or the buckets of a span. 0 if the slot is not live.
  size_t parts(const RegionSlot* slot, size_t i, hydrant_region_t* part) noexcept;
  // Key and range of a live, single region; false otherwise.
  bool describe(const RegionSlot* slot, MemoryRange* range, const std::byte** key) noexcept;
  void read_stats(hydrant_stats_t* stats) noexcept;

  // The operations of remote pins: of the target, and of the initiator.
  ExportView& exports() noexcept { return exports_; }
  PeerRegions& peer_regions() noexcept { return peer_regions_; }

  // --- fork (domain.cpp) ---
  // False in a child that was forked without running the fork handlers.
  bool alive() const noexcept { return parts_.store.alive(); }
  void lock_for_fork() noexcept HYDRANT_NO_TSA { parts_.mu.lock(); }
  void unlock_after_fork() noexcept HYDRANT_NO_TSA { parts_.mu.unlock(); }
  void reset_in_child() noexcept;

 private:
  bool map_slots() noexcept;
  void add_prepinned_region(const CacheLock&, MemoryRange range, Access access,
                            const void* key) noexcept;
  void reset_region_in_child(const CacheLock&, RegionIndex region) noexcept;
  RegionIndex find_partial(const CacheLock&, const PinRequest& request) noexcept;
  void poll_briefly(uint64_t deadline_ns) noexcept;

  CacheParts parts_;
  SlotArena arena_;
  int upkeep_ = -1;  // place in Upkeep, -1: none
  MissPath miss_;
  Releases releases_;
  SpanPins spans_;
  DeferredPins deferred_;
  ExportView exports_;
  PeerRegions peer_regions_;
};

}  // namespace hydrant
