#include "firehose/cache/coherence/invalidator.hpp"

#include "firehose/cache/publisher.hpp"
#include "firehose/cache/unpinner.hpp"
#include "tests/unit/firehose/cache/invalidator_parts.hpp"

#include <set>
#include <vector>

namespace hydrant {
namespace {

using testing::at;
using testing::InvalidatorParts;
using testing::kBase;
using testing::kPage;
using testing::Random;

struct World : InvalidatorParts {
  using InvalidatorParts::InvalidatorParts;
  // Evicts the region, for the unpinner.
  void evict(const CacheLock& lock, RegionIndex r) {
    epoch.fence(lock);
    evictor.evict_region(lock, r, &retired);
  }
  // Adds a region and evicts it.
  void evict_new(MemoryRange range) {
    const CacheLock lock(mu);
    evict(lock, add_open(lock, range));
  }
  WatchLink watch{config, checks};
  Publisher publisher{{7, store, holds, epoch, checks, gates, tables, extensions, retirement,
                       victims, totals, watch}};
  Unpinner unpinner{
      {"test", mu, registrar, store, unpins, free_slots, budget, watch, invalidator, totals}};
  RegionQueue retired;
};

TEST(Invalidator, ForgottenRegionsAreDeadAndPendingOnesPoisoned) {
  World w;
  RegionIndex open = kNoRegion;
  RegionIndex beside = kNoRegion;
  RegionIndex pending = kNoRegion;
  {
    const CacheLock lock(w.mu);
    open = w.add_open(lock, at(0, 4));
    beside = w.add_open(lock, at(8, 4));
    pending = w.add_under_way(lock, at(4, 2));
  }
  EXPECT_TRUE(w.invalidator.any_pinned(at(5)));
  w.invalidator.forget(at(3, 2));
  const CacheLock lock(w.mu);
  EXPECT_EQ(w.state(lock, open), RegionState::kDead);
  EXPECT_TRUE(w.store.infos(lock)[pending].poisoned);
  EXPECT_TRUE(w.is_open(lock, beside));
  EXPECT_EQ(w.invalidator.invalidation_log().count(), 1u);
  EXPECT_EQ(w.totals.of(lock).invalidations, 1u);
}

TEST(Invalidator, UnmappedRangesReachTheRegistrar) {
  World w;
  RegionIndex open = kNoRegion;
  {
    const CacheLock lock(w.mu);
    open = w.add_open(lock, at(0, 4));
    w.invalidator.forget_unmapped(at(2));  // as from a handler that has interrupted the holder
    EXPECT_EQ(w.registrar.told_unmapped, std::vector{at(2)});
  }
  w.invalidator.forget(at(3));
  w.invalidator.forget_unmapped({kBase, Invalidator::kEverything});
  EXPECT_EQ(w.registrar.told_unmapped, std::vector{at(2)});
  const CacheLock lock(w.mu);
  EXPECT_EQ(w.state(lock, open), RegionState::kDead);
}

TEST(Invalidator, EverythingLeavesTheClientsOwnRegistrations) {
  World w;
  RegionIndex own = kNoRegion;
  RegionIndex other = kNoRegion;
  {
    const CacheLock lock(w.mu);
    own = w.add_own(lock, at(0));
    other = w.add_open(lock, at(2));
  }
  w.invalidator.forget({0, Invalidator::kEverything});
  const CacheLock lock(w.mu);
  EXPECT_TRUE(w.is_open(lock, own));
  EXPECT_EQ(w.state(lock, other), RegionState::kDead);
}

TEST(Invalidator, WithoutTheMutexGatesAreShutAndTheNextHolderForgets) {
  World w;
  RegionIndex r = kNoRegion;
  {
    const CacheLock lock(w.mu);
    r = w.add_open(lock, at(0, 2));
    w.invalidator.forget(at(1));  // as from a handler that has interrupted the holder
    EXPECT_TRUE(w.gates.is_shut(lock, r));
    EXPECT_EQ(w.state(lock, r), RegionState::kOpen);
    w.gates.open(lock, r);
    EXPECT_TRUE(w.gates.is_shut(lock, r)) << "something is owed";
    EXPECT_TRUE(w.invalidator.any_pinned(at(90))) << "maybe";
  }
  EXPECT_TRUE(w.invalidator.has_pending());
  const CacheLock lock(w.mu);
  w.invalidator.settle_pending(lock);
  EXPECT_FALSE(w.invalidator.has_pending());
  EXPECT_EQ(w.state(lock, r), RegionState::kDead);
}

TEST(Invalidator, EndedFreeHitsShutPlainGates) {
  World w;
  const CacheLock lock(w.mu);
  const RegionIndex r = w.add_open(lock, at(0));
  w.invalidator.end_free_hits();
  EXPECT_TRUE(w.gates.is_shut(lock, r));
}

TEST(Invalidator, LossInvalidatesOnce) {
  World w;
  {
    const CacheLock lock(w.mu);
    w.add_open(lock, at(0));
  }
  w.invalidator.handle_losses(1);
  EXPECT_EQ(w.invalidator.invalidation_log().count(), 1u);
  w.invalidator.handle_losses(1);
  EXPECT_EQ(w.invalidator.invalidation_log().count(), 1u);
}

// Random releases, reported with the mutex free or held, against a list: after the next holder of the mutex
// has handled them, exactly the regions that no release has touched are open.
TEST(InvalidatorModel, AgreesWithAList) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    World w(512);
    std::set<RegionIndex> open;
    for (int step = 0; step < 120; ++step) {
      if (open.size() < 100) {
        const CacheLock lock(w.mu);
        w.invalidator.settle_pending(lock);
        const MemoryRange range = at(random.below(400), 1 + random.below(4));
        if (!w.tables.any_overlap(lock, range)) open.insert(w.add_open(lock, range));
      }
      if (random.below(3) != 0) continue;
      const bool held = random.below(4) == 0;  // rare: each waits for the mutex, about 0.3 ms
      std::vector<MemoryRange> told;
      const size_t most = held ? 1 + random.below(PendingRanges::kMax) : 1;
      for (size_t i = 0; i < most; ++i) told.push_back(at(random.below(400), 1 + random.below(3)));
      if (held) {
        const CacheLock lock(w.mu);
        for (const MemoryRange range : told) w.invalidator.forget(range);
        for (const RegionIndex r : open) {
          for (const MemoryRange range : told) {
            if (w.store.infos(lock)[r].range.overlaps(range)) {
              ASSERT_TRUE(w.gates.is_shut(lock, r)) << "seed " << seed;
            }
          }
        }
      } else {
        for (const MemoryRange range : told) w.invalidator.forget(range);
      }
      const CacheLock lock(w.mu);
      w.invalidator.settle_pending(lock);
      for (auto it = open.begin(); it != open.end();) {
        bool gone = false;
        for (const MemoryRange range : told) {
          gone = gone || w.store.infos(lock)[*it].range.overlaps(range);
        }
        ASSERT_EQ(w.state(lock, *it), gone ? RegionState::kDead : RegionState::kOpen)
            << "seed " << seed;
        it = gone ? open.erase(it) : std::next(it);
      }
    }
  }
}

TEST(Unpinner, ReturnsSlotsAndChargesAfterTheRegistrarsCall) {
  World w;
  {
    const CacheLock lock(w.mu);
    w.evict(lock, w.add_open(lock, at(0, 3)));
    EXPECT_EQ(w.budget.charged(lock), 3 * kPage);
  }
  EXPECT_FALSE(w.unpinner.unpin(&w.retired, Unpinner::Charge::kReleased));
  ASSERT_EQ(w.registrar.unpinned.size(), 1u);
  EXPECT_EQ(w.registrar.unpinned[0], at(0, 3));
  const CacheLock lock(w.mu);
  EXPECT_EQ(w.budget.charged(lock), 0u);
  EXPECT_EQ(w.budget.regions(lock), 0u);
  EXPECT_EQ(w.totals.of(lock).unpins, 1u);
}

// Otherwise its memory would no longer be watched, and the registrar would not be notified of its release.
TEST(Unpinner, RegionBeingUnpinnedCountsAsPinned) {
  World w;
  w.evict_new(at(0, 3));
  EXPECT_TRUE(w.invalidator.any_pinned(at(2)));
  EXPECT_FALSE(w.invalidator.any_pinned(at(3)));
  (void)w.unpinner.unpin(&w.retired, Unpinner::Charge::kReleased);
  EXPECT_FALSE(w.invalidator.any_pinned(at(2)));
}

TEST(Unpinner, VictimsOfAReservationLeaveTheirChargeToIt) {
  World w;
  w.registrar.result = UnpinResult::kPending;
  w.evict_new(at(0, 3));
  EXPECT_TRUE(w.unpinner.unpin(&w.retired, Unpinner::Charge::kReserved)) << "the kernel keeps it";
  const CacheLock lock(w.mu);
  EXPECT_EQ(w.budget.charged(lock), 3 * kPage);
}

TEST(Unpinner, DetectsLossesOfTheRegistrar) {
  World w;
  {
    const CacheLock lock(w.mu);
    const RegionIndex r = w.add_open(lock, at(0));
    w.add_open(lock, at(2));
    w.evict(lock, r);
  }
  w.registrar.lost = 1;
  (void)w.unpinner.unpin(&w.retired, Unpinner::Charge::kReleased);
  const CacheLock lock(w.mu);
  EXPECT_FALSE(w.tables.any_overlap(lock, at(0, 8)));
}

Plan plan_of(World& w, const CacheLock& lock, MemoryRange range,
             Access access = Access::kLocalWrite) {
  Plan plan;
  plan.range = range;
  plan.access = access;
  plan.charge = range.len;
  plan.region = w.add_pending(lock, range, access);
  return plan;
}

TEST(Publisher, PublishedRegionIsFoundAndReplacesCoveredRegions) {
  World w;
  const CacheLock lock(w.mu);
  const Plan small = plan_of(w, lock, at(2));
  w.publisher.publish(lock, small, true);
  EXPECT_TRUE(w.is_open(lock, small.region));
  EXPECT_EQ(w.store.slot(small.region).tag, 7u);
  const Plan large = plan_of(w, lock, at(0, 8));
  w.publisher.publish(lock, large, true);
  EXPECT_EQ(w.tables.find(lock, at(2), Access::kLocalWrite), large.region);
  EXPECT_EQ(w.state(lock, small.region), RegionState::kDead);
  EXPECT_EQ(w.totals.of(lock).merges, 1u);
}

TEST(Publisher, UncachedRegionIsForItsHoldersOnly) {
  World w;
  const CacheLock lock(w.mu);
  const Plan large = plan_of(w, lock, at(0, 8));
  w.publisher.publish(lock, large, true);
  for (const bool cacheable : {true, false}) {
    const Plan plan = plan_of(w, lock, cacheable ? at(2) : at(20));
    w.publisher.publish(lock, plan, cacheable);
    const RegionInfo& info = w.store.infos(lock)[plan.region];
    EXPECT_EQ(info.state, RegionState::kDead);
    EXPECT_TRUE(info.is_unopened);
    EXPECT_EQ(info.uncached, !cacheable);
    EXPECT_TRUE(w.gates.is_shut(lock, plan.region));
  }
  EXPECT_EQ(w.tables.find(lock, at(20), Access::kLocalRead), kNoRegion);
}

}  // namespace
}  // namespace hydrant
