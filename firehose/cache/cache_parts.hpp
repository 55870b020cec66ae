// The parts of a domain, in the order in which they are built on each other, and the wiring between them.
// No code but construction: the steps of an operation are in domain_*.cpp, span_pins.cpp and
// deferred_pins.cpp, which call the parts.
#pragma once

#include "firehose/cache/budget/evictor.hpp"
#include "firehose/cache/coherence/watch_link.hpp"
#include "firehose/cache/plan/extension_limits.hpp"
#include "firehose/cache/policy/cache_policies.hpp"
#include "firehose/cache/publisher.hpp"
#include "firehose/cache/refusal_texts.hpp"
#include "firehose/cache/region/begun_pins.hpp"
#include "firehose/cache/thread_states.hpp"
#include "firehose/cache/unpinner.hpp"

#include <atomic>
#include <memory>

namespace hydrant {

struct CacheParts {
  CacheParts(const DomainConfig& settings, std::unique_ptr<Registrar> its_registrar,
             CachePolicies its_policies, uint64_t handle) noexcept;

  // Slots of a domain with so many regions: blank and dead regions need some beside them.
  static constexpr uint32_t slots_for(uint32_t max_regions) noexcept {
    return max_regions + max_regions / 2 + 256;
  }

  const DomainConfig config;
  const std::unique_ptr<Registrar> registrar;
  const RegistrarTraits& traits;
  const CachePolicies policies;

  // Level 2 (after registry_mutex()). Held for short and bounded work only; not while the registrar, a
  // callback or malloc is called.
  mutable Mutex mu;
  PendingRanges pending_ranges;  // added without the mutex; its next holder forgets them
  CacheTotals totals;
  RegionStore store;
  HoldCounts holds;
  FenceEpoch epoch;
  FreeSlots free_slots;
  HitChecks checks;
  Gates gates;
  RegionTables tables;
  Extensions extensions;
  VictimList victims;
  UnpinsUnderWay unpins;
  Retirement retirement;
  Budget budget;
  Evictor evictor;
  PendingRegions pending;
  BegunPins begun;
  Planner planner;
  VouchedRanges vouched;
  ExtensionLimits limits;
  WatchLink watch;
  Invalidator invalidator;
  Unpinner unpinner;
  Publisher publisher;
  ThreadStates threads;
  RefusalTexts texts;
  std::atomic<uint64_t> budget_shortages{0};  // pins that failed because regions are held
};

// A phase of an operation: takes the mutex, and first forgets the pending ranges.
class CachePhase : public CacheLock {
 public:
  explicit CachePhase(CacheParts& parts) noexcept : CacheLock(parts.mu) {
    parts.invalidator.settle_pending(*this);
  }
};

// Lists a call that has begun and may register the range. Has a cost only if the registrar must unpin before
// memory is released.
class BegunPin {
 public:
  BegunPin(CacheParts& parts, MemoryRange range) noexcept : parts_(parts) {
    if (parts.traits.unpin_before_release) begin(range);
  }
  ~BegunPin() {
    if (!listed_) return;
    const CachePhase lock(parts_);
    parts_.begun.remove(lock, entry_);
  }
  BegunPin(const BegunPin&) = delete;
  BegunPin& operator=(const BegunPin&) = delete;

 private:
  void begin(MemoryRange range) noexcept {
    entry_.pages = round_out(range, parts_.config.granule_bytes);
    const CachePhase lock(parts_);
    parts_.begun.add(lock, entry_);
    listed_ = true;
  }

  CacheParts& parts_;
  BegunPins::Entry entry_;  // set if listed_
  bool listed_ = false;
};

}  // namespace hydrant
