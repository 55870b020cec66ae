// The invalidator where it cannot take the mutex, has no room to note a range, or is asked about memory that
// is no open region.
#include "firehose/cache/coherence/invalidator.hpp"
#include "tests/unit/firehose/cache/invalidator_parts.hpp"

#include <vector>

namespace hydrant {
namespace {

using testing::at;
using testing::InvalidatorParts;

// The range without room may have been in a client's own region, which is otherwise kept.
TEST(InvalidatorLimits, RangesWithoutRoomCloseEverything) {
  InvalidatorParts w;
  const CacheLock lock(w.mu);
  const RegionIndex own = w.add_own(lock, at(0));
  const RegionIndex other = w.add_open(lock, at(4));
  const RegionIndex pending = w.add_under_way(lock, at(8));
  for (size_t i = 0; i < PendingRanges::kMax; ++i) w.invalidator.forget(at(100 + 2 * i));
  w.invalidator.settle_pending(lock);
  EXPECT_TRUE(w.is_open(lock, own) && w.is_open(lock, other)) << "there was room for each";
  EXPECT_FALSE(w.store.infos(lock)[pending].poisoned);
  for (size_t i = 0; i <= PendingRanges::kMax; ++i) w.invalidator.forget(at(100 + 2 * i));
  w.invalidator.settle_pending(lock);
  EXPECT_EQ(w.state(lock, own), RegionState::kDead);
  EXPECT_EQ(w.state(lock, other), RegionState::kDead);
  EXPECT_TRUE(w.store.infos(lock)[pending].poisoned);
  EXPECT_FALSE(w.invalidator.has_pending());
}

TEST(InvalidatorLimits, EverythingWithoutTheMutexLeavesTheClientsOwn) {
  InvalidatorParts w;
  const CacheLock lock(w.mu);
  const RegionIndex own = w.add_own(lock, at(0));
  const RegionIndex other = w.add_open(lock, at(4));
  w.invalidator.forget({0, Invalidator::kEverything});
  EXPECT_TRUE(w.gates.is_shut(lock, other)) << "at once";
  w.invalidator.settle_pending(lock);
  EXPECT_EQ(w.state(lock, own), RegionState::kOpen);
  EXPECT_EQ(w.state(lock, other), RegionState::kDead);
  EXPECT_EQ(w.totals.of(lock).invalidations, 1u);
}

// More regions than the tables return at once: all slots are searched, also those that were never used.
TEST(InvalidatorLimits, GatesOfManyRegionsAreShutWithoutTheMutex) {
  constexpr size_t kMany = 600;
  InvalidatorParts w(2 * kMany);
  const CacheLock lock(w.mu);
  std::vector<RegionIndex> inside;
  for (size_t i = 0; i < kMany; ++i) inside.push_back(w.add_open(lock, at(2 * i)));
  const RegionIndex outside = w.add_open(lock, at(2 * kMany));
  const RegionIndex blank = w.add_pending(lock, at(2 * kMany + 4));
  w.store.slot(blank).addr.store(kBlankAddr);
  const RegionIndex empty = w.add_pending(lock, at(2 * kMany + 8));
  w.store.slot(empty).addr.store(at(0).addr);
  w.store.slot(empty).len.store(0);
  w.invalidator.forget(at(0, 2 * kMany));
  for (const RegionIndex r : inside) ASSERT_TRUE(w.gates.is_shut(lock, r)) << r;
  EXPECT_FALSE(w.gates.is_shut(lock, outside));
  w.invalidator.settle_pending(lock);
  for (const RegionIndex r : inside) ASSERT_EQ(w.state(lock, r), RegionState::kDead) << r;
  EXPECT_TRUE(w.is_open(lock, outside));
}

TEST(InvalidatorLimits, MoreRegionsThanABatchAreAllForgotten) {
  constexpr size_t kMany = 600;
  InvalidatorParts w(2 * kMany);
  std::vector<RegionIndex> inside;
  RegionIndex outside = kNoRegion;
  {
    const CacheLock lock(w.mu);
    for (size_t i = 0; i < kMany; ++i) inside.push_back(w.add_open(lock, at(2 * i)));
    outside = w.add_open(lock, at(2 * kMany));
  }
  w.invalidator.forget(at(0, 2 * kMany));
  const CacheLock lock(w.mu);
  for (const RegionIndex r : inside) ASSERT_EQ(w.state(lock, r), RegionState::kDead) << r;
  EXPECT_TRUE(w.is_open(lock, outside));
  EXPECT_EQ(w.totals.of(lock).invalidations, 1u) << "counted once";
  EXPECT_EQ(w.invalidator.invalidation_log().count(), 1u);
}

TEST(InvalidatorLimits, VouchedMemoryAloneIsForgotten) {
  for (const bool is_busy : {false, true}) {
    InvalidatorParts w;
    RegionIndex vouched = kNoRegion;
    RegionIndex other = kNoRegion;
    {
      const CacheLock lock(w.mu);
      vouched = w.add_open(lock, at(0));
      w.store.infos(lock)[vouched].vouched = true;
      other = w.add_open(lock, at(4));
      if (is_busy) {
        w.invalidator.forget_vouched();  // as from a handler that has interrupted the holder
        EXPECT_TRUE(w.gates.is_shut(lock, vouched) && w.gates.is_shut(lock, other)) << "in doubt";
        EXPECT_EQ(w.state(lock, vouched), RegionState::kOpen);
      }
    }
    if (!is_busy) w.invalidator.forget_vouched();
    const CacheLock lock(w.mu);
    w.invalidator.settle_pending(lock);
    EXPECT_EQ(w.state(lock, vouched), RegionState::kDead);
    EXPECT_EQ(w.state(lock, other), RegionState::kOpen);
    EXPECT_EQ(w.invalidator.invalidation_log().count(), 1u);
  }
}

// Each alone keeps memory watched.
TEST(InvalidatorLimits, CallsRegistrationsDeadRegionsAndRefusalsCountAsPinned) {
  InvalidatorParts w;
  BegunPins::Entry entry;
  entry.pages = at(0);
  {
    const CacheLock lock(w.mu);
    w.begun.add(lock, entry);
    w.add_open(lock, at(4));
    w.add_under_way(lock, at(8));
    const RegionIndex dead = w.add_open(lock, at(12));
    w.victims.remove(lock, dead);
    w.retirement.close(lock, dead);
    w.retirement.add_dead(lock, dead);
    w.planner.note_refused(lock, at(16), Access::kLocalWrite);
  }
  for (const size_t page : {0u, 4u, 8u, 12u, 16u}) {
    EXPECT_TRUE(w.invalidator.any_pinned(at(page))) << page;
    EXPECT_FALSE(w.invalidator.any_pinned(at(page + 1))) << page;
  }
  const CacheLock lock(w.mu);
  w.begun.remove(lock, entry);
}

// A loss that was handled before leaves the regions that were registered since.
TEST(InvalidatorLimits, NewLossForgetsWhatIsRegisteredNow) {
  InvalidatorParts w;
  for (uint64_t loss = 1; loss <= 3; ++loss) {
    RegionIndex r = kNoRegion;
    {
      const CacheLock lock(w.mu);
      r = w.add_open(lock, at(4 * loss));
    }
    w.invalidator.handle_losses(loss - 1);
    {
      const CacheLock lock(w.mu);
      EXPECT_TRUE(w.is_open(lock, r)) << "loss " << loss << " is not known yet";
    }
    w.invalidator.handle_losses(loss);
    const CacheLock lock(w.mu);
    EXPECT_EQ(w.state(lock, r), RegionState::kDead);
  }
}

}  // namespace
}  // namespace hydrant
