#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <vector>

namespace hydrant {
namespace {

using testing::at;
using testing::FakeThread;
using testing::Parts;
using testing::Random;

TEST(HoldCounts, ReleasesInAnotherThreadCount) {
  Parts parts;
  FakeThread one(64);
  FakeThread two(64);
  const CacheLock lock(parts.mu);
  parts.holds.attach(lock, one.state);
  parts.holds.attach(lock, two.state);
  const RegionIndex r = parts.add_open(lock, at(0));
  parts.holds.take(lock, &one.state, r);
  parts.holds.take(lock, nullptr, r);
  EXPECT_EQ(parts.holds.sum(lock, r), 2u);
  EXPECT_EQ(parts.holds.drop(lock, &two.state, r), 1u);
  parts.holds.detach(lock, one.state);
  EXPECT_EQ(parts.holds.sum(lock, r), 1u) << "the holds of a thread that ends stay";
  EXPECT_EQ(parts.holds.drop(lock, &two.state, r), 0u);
  EXPECT_EQ(parts.holds.threads(lock), 1u);
}

TEST(HoldCounts, FewerThanNoneMarksTheRegion) {
  Parts parts;
  FakeThread thread(64);
  const CacheLock lock(parts.mu);
  parts.holds.attach(lock, thread.state);
  const RegionIndex r = parts.add_open(lock, at(0));
  parts.holds.drop(lock, &thread.state, r);
  EXPECT_EQ(parts.holds.settled(lock, r), 0u);
  EXPECT_TRUE(parts.store.infos(lock)[r].over_released);
  EXPECT_EQ(parts.holds.sum(lock, r), 0u);
}

TEST(HoldCounts, NeverOpenedRegionCountsFromItsStart) {
  Parts parts;
  const CacheLock lock(parts.mu);
  const RegionIndex r = parts.add_pending(lock, at(0));
  parts.holds.take(lock, nullptr, r);  // from an earlier use of the slot
  parts.holds.add_unopened(lock, r);
  EXPECT_EQ(parts.holds.sum_of_unopened(lock, r), 0u);
  parts.holds.take(lock, nullptr, r);
  EXPECT_EQ(parts.holds.sum_of_unopened(lock, r), 1u);
  EXPECT_EQ(parts.holds.drop(lock, nullptr, r), 0u);
}

// Random holds of random threads, which start and exit, against one number per region.
TEST(HoldCounts, SumsAreThoseOfAPlainCount) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Parts parts;
    const CacheLock lock(parts.mu);
    std::vector<std::unique_ptr<FakeThread>> threads;
    std::vector<RegionIndex> regions;
    std::vector<uint32_t> model(64, 0);
    for (size_t i = 0; i < 20; ++i) regions.push_back(parts.add_open(lock, at(2 * i)));
    for (int step = 0; step < 1000; ++step) {
      const RegionIndex r = regions[random.below(regions.size())];
      ThreadDomain* thread =
          threads.empty() ? nullptr : &threads[random.below(threads.size())]->state;
      switch (random.below(8)) {
        case 0:
          if (threads.size() == 5) break;
          threads.push_back(std::make_unique<FakeThread>(64));
          parts.holds.attach(lock, threads.back()->state);
          break;
        case 1:
          if (threads.empty()) break;
          parts.holds.detach(lock, threads.back()->state);
          threads.pop_back();
          break;
        case 2:
        case 3:
          if (model[r] == 0) break;
          ASSERT_EQ(parts.holds.drop(lock, thread, r), --model[r]) << "seed " << seed;
          break;
        default: parts.holds.take(lock, thread, r); ++model[r];
      }
      uint32_t sums[20];
      parts.holds.settled(lock, regions.data(), regions.size(), sums);
      for (size_t i = 0; i < regions.size(); ++i) {
        ASSERT_EQ(sums[i], model[regions[i]]) << "seed " << seed;
      }
    }
    while (!threads.empty()) {
      parts.holds.detach(lock, threads.back()->state);
      threads.pop_back();
    }
  }
}

TEST(FreeSlots, SlotIsReusedAfterAFenceOnly) {
  Parts parts(4);
  const CacheLock lock(parts.mu);
  const RegionIndex first = parts.free_slots.allocate(lock);
  parts.free_slots.quarantine(lock, first);
  EXPECT_NE(parts.free_slots.allocate(lock), first) << "no fence yet";
  parts.epoch.fence(lock);
  EXPECT_EQ(parts.free_slots.allocate(lock), first);
}

TEST(FreeSlots, SlotWithAHoldWaits) {
  Parts parts(3);
  FakeThread thread(3);
  const CacheLock lock(parts.mu);
  parts.holds.attach(lock, thread.state);
  const RegionIndex one = parts.free_slots.allocate(lock);
  const RegionIndex two = parts.free_slots.allocate(lock);
  EXPECT_EQ(parts.free_slots.allocate(lock), kNoRegion);
  post_hold(thread.state.counts[one]);  // between posting and checking
  parts.free_slots.quarantine(lock, one);
  parts.free_slots.quarantine(lock, two);
  EXPECT_EQ(parts.free_slots.allocate(lock), two) << "pays for a fence";
  EXPECT_EQ(parts.free_slots.allocate(lock), kNoRegion);
  drop_hold(thread.state.counts[one]);
  EXPECT_EQ(parts.free_slots.allocate(lock), one);
}

TEST(Gates, RegionStaysShutWhileRangesArePending) {
  Parts parts;
  const CacheLock lock(parts.mu);
  const RegionIndex r = parts.add_open(lock, at(0));
  EXPECT_TRUE(parts.gates.shut(lock, r));
  EXPECT_FALSE(parts.gates.shut(lock, r)) << "shut already";
  parts.pending_ranges.add_nothing();
  parts.gates.open(lock, r);
  EXPECT_TRUE(parts.gates.is_shut(lock, r));
  parts.pending_ranges.take([](MemoryRange) {}, [] {}, [] {});
  parts.gates.open(lock, r);
  EXPECT_FALSE(parts.gates.is_shut(lock, r));
  mark_gates(parts.store.slot(r));
  EXPECT_TRUE(parts.gates.is_shut(lock, r));
  EXPECT_TRUE(parts.gates.shut(lock, r)) << "its fence is not known";
}

TEST(Gates, OnceFreeHitsEndHookedRegionsAreChecked) {
  Parts parts;
  uint32_t ended = 0;
  parts.checks.follow(&ended);
  const CacheLock lock(parts.mu);
  const RegionIndex r = parts.add_open(lock, at(0));
  parts.store.infos(lock)[r].hooked = true;
  parts.gates.check_from_now_on(lock, r);
  EXPECT_NE(parts.store.slot(r).gate, 0u);
  EXPECT_FALSE(parts.checks.must_query());
  ended = 1;
  EXPECT_TRUE(parts.checks.must_query());
  parts.gates.check_from_now_on(lock, r);
  EXPECT_EQ(parts.store.slot(r).gate, 0u);
  EXPECT_EQ(parts.store.slot(r).checked_gate, at(0).end());
  EXPECT_TRUE(parts.checks.has_checked_regions());
}

TEST(PendingRegions, RegistrationIsFoundUntilItIsPoisonedOrEnds) {
  Parts parts;
  const CacheLock lock(parts.mu);
  const RegionIndex r = parts.add_pending(lock, at(0, 4));
  parts.pending.add(lock, r);
  EXPECT_EQ(parts.pending.find(lock, at(1, 2), Access::kLocalWrite), r);
  EXPECT_EQ(parts.pending.find(lock, at(1, 2), Access::kRemoteRead), kNoRegion);
  EXPECT_EQ(parts.pending.find(lock, at(3, 2), Access::kLocalRead), kNoRegion);
  EXPECT_TRUE(parts.pending.any_overlap(lock, at(3, 2)));
  parts.pending.poison(lock, at(4));
  EXPECT_EQ(parts.pending.find(lock, at(1), Access::kLocalRead), r);
  parts.pending.poison(lock, at(3));
  EXPECT_EQ(parts.pending.find(lock, at(1), Access::kLocalRead), kNoRegion);
  EXPECT_TRUE(parts.pending.any_overlap(lock, at(0)));
  parts.pending.remove(lock, r);
  EXPECT_FALSE(parts.pending.any_overlap(lock, at(0)));
}

// Registrations end in another order than they began in.
TEST(PendingRegions, RegistrationInFlightIsFoundAfterOthersEnd) {
  Parts parts;
  const CacheLock lock(parts.mu);
  constexpr size_t kRegions = 12;
  std::vector<RegionIndex> regions;
  for (size_t i = 0; i < kRegions; ++i) {
    regions.push_back(parts.add_pending(lock, at(4 * i, 4)));
    parts.pending.add(lock, regions.back());
  }
  std::vector<bool> is_pending(kRegions, true);
  Random random(7);
  for (size_t left = kRegions; left != 0; --left) {
    size_t i = random.below(kRegions);
    while (!is_pending[i]) i = (i + 1) % kRegions;
    parts.pending.remove(lock, regions[i]);
    is_pending[i] = false;
    parts.store.infos(lock)[regions[i]].poisoned = false;
    parts.pending.poison(lock, at(4 * i, 4));  // of no region that is still pending
    for (size_t j = 0; j < kRegions; ++j) {
      const RegionIndex expected = is_pending[j] ? regions[j] : kNoRegion;
      EXPECT_EQ(parts.pending.find(lock, at(4 * j + 1, 2), Access::kLocalWrite), expected)
          << i << " " << j;
      EXPECT_EQ(parts.pending.any_overlap(lock, at(4 * j)), is_pending[j]) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace hydrant
