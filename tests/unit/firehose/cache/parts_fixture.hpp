// The lower parts of a cache, wired as in cache_parts.cpp, and short ways to make regions and holds.
#pragma once

#include "firehose/cache/budget/evictor.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/cache/plan/planner.hpp"
#include "firehose/cache/region/begun_pins.hpp"
#include "firehose/cache/region/free_slots.hpp"
#include "firehose/cache/region/pending_regions.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace hydrant::testing {

constexpr uintptr_t kBase = uintptr_t{1} << 40;
inline MemoryRange at(size_t page, size_t pages = 1) {
  return {kBase + page * kPage, pages * kPage};
}

// The number of fences that the parts have issued: this program has no others.
extern unsigned g_fences;

// A thread with counts for `slots` regions, as thread_state.cpp makes it.
struct FakeThread {
  explicit FakeThread(size_t slots) : memory(slots + kHitsBefore) {
    state.counts = memory.data() + kHitsBefore;
  }
  std::vector<HoldCount> memory;
  ThreadDomain state;
};

struct Parts {
  explicit Parts(uint32_t slots = 64, Budget::Share whole = {64 * kPage, 48},
                 bool smallest_first = false, uint32_t bucket_shift = 0)
      : slot_memory(new RegionSlot[slots]()),
        store(slots, 8, 0),
        holds(store),
        free_slots(store, holds, epoch),
        gates(store, epoch, pending_ranges, checks),
        tables(store),
        extensions(store, totals, kPage),
        victims(store, policy),
        unpins(store),
        retirement({store, holds, epoch, gates, tables, extensions, victims, unpins}),
        budget(whole, kPage),
        evictor({store, holds, epoch, gates, tables, retirement, budget, victims, totals},
                smallest_first),
        pending(store) {
    EXPECT_TRUE(store.map(slot_memory.get()));
    EXPECT_TRUE(holds.map());
    EXPECT_TRUE(pending.map());
    EXPECT_TRUE(tables.make(bucket_shift));
    EXPECT_TRUE(policy.map(slots));
  }

  // Adds a region in the state after a claim, charged.
  RegionIndex add_pending(const CacheLock& lock, MemoryRange range,
                          Access access = Access::kLocalWrite) {
    const RegionIndex r = free_slots.allocate(lock);
    EXPECT_NE(r, kNoRegion);
    RegionInfo& info = store.infos(lock)[r];
    info = {};
    info.range = range;
    info.access = access;
    info.charge = range.len;
    info.state = RegionState::kPending;
    budget.take(lock, {range.len, 1});
    return r;
  }
  // Adds a published region.
  RegionIndex add_open(const CacheLock& lock, MemoryRange range,
                       Access access = Access::kLocalWrite) {
    const RegionIndex r = add_pending(lock, range, access);
    RegionSlot& slot = store.slot(r);
    slot.len.store(range.len);
    slot.denied.store(~bits(access));
    slot.addr.store(range.addr);
    slot.tag.store(1);
    store.infos(lock)[r].state = RegionState::kOpen;
    EXPECT_TRUE(tables.prepare(lock, access));
    EXPECT_TRUE(tables.insert(lock, r));
    victims.add(lock, r);
    gates.open(lock, r);
    return r;
  }
  // Does what the unpinner does at its end: releases the budget and quarantines the slots.
  void settle(const CacheLock& lock, RegionQueue* retired) {
    auto& infos = store.infos(lock);
    while (!retired->empty()) {
      const RegionIndex r = retired->pop(infos);
      budget.release(lock, {infos[r].charge, 1});
      unpins.end(lock, r);
      free_slots.quarantine(lock, r);
    }
  }
  bool is_open(const CacheLock& lock, RegionIndex r) {
    return store.infos(lock)[r].state == RegionState::kOpen && !gates.is_shut(lock, r);
  }

  std::unique_ptr<RegionSlot[]> slot_memory;
  ClockPolicy policy;
  Mutex mu;
  PendingRanges pending_ranges;
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
};

// Random numbers of a seed that failures report.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }

 private:
  std::mt19937 engine_;
};

}  // namespace hydrant::testing
