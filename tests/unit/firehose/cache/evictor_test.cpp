#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>
#include <set>

namespace hydrant {
namespace {

using testing::at;
using testing::FakeThread;
using testing::g_fences;
using testing::kPage;
using testing::Parts;
using testing::Random;

class EvictorTest : public ::testing::Test {
 protected:
  size_t evict(const CacheLock& lock, Budget::Share lack) {
    Budget::Share idle;
    const bool enough = parts_.evictor.evict(lock, lack, &victims_, &idle);
    return enough ? victims_.size() : 0;
  }
  Parts parts_;
  RegionQueue victims_;
};

TEST_F(EvictorTest, EvictsTheOldestThatIsNotHeld) {
  const CacheLock lock(parts_.mu);
  const RegionIndex held = parts_.add_open(lock, at(0));
  const RegionIndex old = parts_.add_open(lock, at(2));
  const RegionIndex young = parts_.add_open(lock, at(4));
  parts_.holds.take(lock, nullptr, held);
  ASSERT_EQ(evict(lock, {1, 1}), 1u);
  EXPECT_EQ(victims_.front(), old);
  EXPECT_EQ(parts_.store.infos(lock)[old].state, RegionState::kRetiring);
  EXPECT_EQ(parts_.store.slot(old).addr, kBlankAddr);
  EXPECT_TRUE(parts_.is_open(lock, held));
  EXPECT_EQ(parts_.tables.find(lock, at(2), Access::kLocalRead), kNoRegion);
  EXPECT_EQ(parts_.tables.find(lock, at(4), Access::kLocalRead), young);
  EXPECT_EQ(parts_.totals.of(lock).evictions, 1u);
}

TEST_F(EvictorTest, UnservableRequestShutsNoGate) {
  const CacheLock lock(parts_.mu);
  const RegionIndex one = parts_.add_open(lock, at(0));
  const RegionIndex held = parts_.add_open(lock, at(2, 8));
  parts_.holds.take(lock, nullptr, held);
  const unsigned fences = g_fences;
  Budget::Share idle;
  EXPECT_FALSE(parts_.evictor.evict(lock, {2 * kPage, 1}, &victims_, &idle));
  EXPECT_EQ(idle.bytes, kPage) << "for the text of the refusal";
  EXPECT_EQ(g_fences, fences);
  EXPECT_TRUE(victims_.empty());
  EXPECT_TRUE(parts_.is_open(lock, one));
}

TEST_F(EvictorTest, OneFenceServesSeveralEvictions) {
  const CacheLock lock(parts_.mu);
  for (size_t i = 0; i < 32; ++i) parts_.add_open(lock, at(2 * i));
  const unsigned fences = g_fences;
  for (int i = 0; i < 8; ++i) ASSERT_NE(evict(lock, {1, 1}), 0u);
  EXPECT_EQ(g_fences, fences + 1);
}

TEST_F(EvictorTest, ReplacesWhatARangeCoversIfThatSuffices) {
  const CacheLock lock(parts_.mu);
  const RegionIndex first = parts_.add_open(lock, at(0, 2));
  parts_.add_open(lock, at(2, 2));
  const RegionIndex outside = parts_.add_open(lock, at(3, 2));
  const RegionIndex of_more_rights = parts_.add_open(lock, at(1), Access::kRemoteWrite);
  const auto replace = [&](size_t pages) {  // so many are lacking
    return parts_.evictor.replace(lock, at(0, 4), Access::kLocalWrite, {(57 + pages) * kPage, 1},
                                  &victims_);
  };
  EXPECT_TRUE(replace(0));
  EXPECT_TRUE(victims_.empty());
  EXPECT_FALSE(replace(5));
  parts_.holds.take(lock, nullptr, first);
  EXPECT_FALSE(replace(3)) << "held";
  EXPECT_TRUE(parts_.is_open(lock, first));
  parts_.holds.drop(lock, nullptr, first);
  ASSERT_TRUE(replace(4));
  EXPECT_EQ(victims_.size(), 2u);
  EXPECT_EQ(parts_.store.infos(lock)[first].state, RegionState::kRetiring);
  EXPECT_EQ(parts_.tables.find(lock, at(2), Access::kLocalRead), kNoRegion);
  EXPECT_TRUE(parts_.is_open(lock, outside));
  EXPECT_TRUE(parts_.is_open(lock, of_more_rights));
  EXPECT_EQ(parts_.totals.of(lock).merges, 2u);
}

TEST_F(EvictorTest, ExtensionOfAReplacedRegionIsNotWasted) {
  const CacheLock lock(parts_.mu);
  parts_.extensions.enter(lock, parts_.add_open(lock, at(0, 4)), 3 * kPage, false);
  ASSERT_TRUE(
      parts_.evictor.replace(lock, at(0, 4), Access::kLocalWrite, {61 * kPage, 1}, &victims_));
  EXPECT_EQ(victims_.size(), 1u);
  EXPECT_EQ(parts_.totals.of(lock).wasted_bytes, 0u);
}

TEST(SmallestFirst, TakesTheSmallestThatSuffices) {
  Parts parts(64, {1000 * kPage, 100}, true);
  const CacheLock lock(parts.mu);
  parts.add_open(lock, at(0, 9));
  parts.add_open(lock, at(20, 2));
  const RegionIndex right = parts.add_open(lock, at(40, 5));
  RegionQueue victims;
  Budget::Share idle;
  ASSERT_TRUE(parts.evictor.evict(lock, {4 * kPage, 1}, &victims, &idle));
  EXPECT_EQ(victims.front(), right);
  EXPECT_EQ(victims.size(), 1u);
}

TEST(ClockPolicy, ChildStartsWithEmptyQueues) {
  ClockPolicy policy;
  ASSERT_TRUE(policy.map(8));
  RegionIndex regions[8];
  for (RegionIndex r = 1; r <= 6; ++r) policy.insert(r, kPage, kPage);
  ASSERT_EQ(policy.watch(regions, 8), 3u);
  policy.reset_in_child();
  EXPECT_EQ(policy.evict(regions, 8), 0u);
  EXPECT_EQ(policy.watch(regions, 8), 0u);
  // As Domain::reset_in_child() does: the parent's regions are unknown.
  for (RegionIndex r = 1; r <= 6; ++r) policy.erase(r);
  policy.insert(2, kPage, kPage);
  policy.insert(5, kPage, kPage);
  ASSERT_EQ(policy.evict(regions, 8), 2u);
  EXPECT_EQ(regions[0], 2u);
  EXPECT_EQ(regions[1], 5u);
  EXPECT_EQ(policy.watch(regions, 8), 1u);
}

// Random requests among random holds: each is served completely or not at all, no held region is evicted, and
// the policy knows the open regions.
TEST(EvictorModel, RandomEvictionsAreAllOrNothingAndSpareHeldRegions) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    Parts parts(256, {10'000 * kPage, 200}, seed % 2 == 0);
    FakeThread thread(256);
    const CacheLock lock(parts.mu);
    parts.holds.attach(lock, thread.state);
    std::set<RegionIndex> open;
    std::set<RegionIndex> held;
    size_t page = 0;
    for (int step = 0; step < 400; ++step) {
      if (open.size() < 20 || (open.size() < 60 && random.below(2) == 0)) {
        const size_t pages = 1 + random.below(8);
        open.insert(parts.add_open(lock, at(page, pages)));
        page += pages + 1;
        continue;
      }
      auto it = open.begin();
      std::advance(it, static_cast<ptrdiff_t>(random.below(open.size())));
      if (random.below(2) == 0) {
        if (held.insert(*it).second) {
          parts.holds.take(lock, &thread.state, *it);
        } else {
          held.erase(*it);
          parts.holds.drop(lock, &thread.state, *it);
        }
        continue;
      }
      const Budget::Share lack{random.below(40) * kPage, static_cast<uint32_t>(random.below(4))};
      uint64_t idle_bytes = 0;
      size_t idle_regions = 0;
      for (const RegionIndex r : open) {
        if (held.count(r) != 0) continue;
        idle_bytes += parts.store.infos(lock)[r].charge;
        ++idle_regions;
      }
      RegionQueue victims;
      Budget::Share idle;
      const bool enough = parts.evictor.evict(lock, lack, &victims, &idle);
      if (lack.bytes != 0 || lack.regions != 0) {
        ASSERT_EQ(enough, idle_bytes >= lack.bytes && idle_regions >= lack.regions)
            << "seed " << seed;
      }
      uint64_t freed = 0;
      const size_t count = victims.size();
      for (RegionIndex r = victims.front(); r != kNoRegion; r = parts.store.infos(lock)[r].next) {
        ASSERT_EQ(held.count(r), 0u) << "seed " << seed;
        ASSERT_EQ(open.erase(r), 1u) << "seed " << seed;
        freed += parts.store.infos(lock)[r].charge;
      }
      if (enough) {
        ASSERT_TRUE(freed >= lack.bytes && count >= lack.regions) << "seed " << seed;
      }
      if (!enough) {
        ASSERT_EQ(count, 0u);
      }
      parts.settle(lock, &victims);
      for (const RegionIndex r : open) {
        ASSERT_EQ(parts.store.infos(lock)[r].state, RegionState::kOpen);
        ASSERT_TRUE(parts.store.infos(lock)[r].listed);
      }
    }
    parts.holds.detach(lock, thread.state);
  }
}

class RetirementTest : public EvictorTest {};

TEST_F(RetirementTest, DeadRegionsAreRetiredAfterTheirLastRelease) {
  const CacheLock lock(parts_.mu);
  const RegionIndex idle = parts_.add_open(lock, at(0));
  const RegionIndex held = parts_.add_open(lock, at(2));
  parts_.holds.take(lock, nullptr, held);
  EXPECT_TRUE(parts_.retirement.looks_idle());
  RegionQueue list;
  for (const RegionIndex r : {idle, held}) {
    parts_.victims.remove(lock, r);
    parts_.retirement.close(lock, r);
    list.push(parts_.store.infos(lock), r);
  }
  const unsigned fences = g_fences;
  RegionQueue retired;
  parts_.retirement.settle(lock, &list, &retired);
  EXPECT_EQ(g_fences, fences + 1);
  EXPECT_EQ(retired.size(), 1u);
  EXPECT_EQ(retired.front(), idle);
  EXPECT_EQ(parts_.retirement.dead(lock).size(), 1u);
  EXPECT_FALSE(parts_.retirement.looks_idle());
  parts_.holds.drop(lock, nullptr, held);
  parts_.retirement.drain(lock, 64, &retired);
  EXPECT_EQ(g_fences, fences + 1) << "shut before the last fence";
  EXPECT_EQ(retired.size(), 2u);
  EXPECT_TRUE(parts_.retirement.dead(lock).empty());
}

TEST_F(RetirementTest, FewDeadRegionsAreNotWorthAFence) {
  const CacheLock lock(parts_.mu);
  RegionQueue retired;
  const auto kill = [&](size_t page) {
    const RegionIndex r = parts_.add_open(lock, at(page));
    parts_.retirement.close(lock, r);
    parts_.retirement.add_dead(lock, r);
  };
  for (size_t i = 0; i < 31; ++i) kill(2 * i);
  parts_.retirement.drain_many(lock, 1000 * kPage, &retired);
  EXPECT_TRUE(retired.empty());
  kill(70);
  parts_.retirement.drain_many(lock, 1000 * kPage, &retired);
  EXPECT_EQ(retired.size(), 32u);
}

// The policy against a list in the order of insertions and uses.
TEST(ClockPolicyModel, NamesEachRegionOnceAndWatchedOnesFirst) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    ClockPolicy policy;
    ASSERT_TRUE(policy.map(64));
    std::vector<RegionIndex> active;
    std::vector<RegionIndex> watched;
    for (int step = 0; step < 500; ++step) {
      const auto r = static_cast<RegionIndex>(1 + random.below(60));
      const auto in = [&](std::vector<RegionIndex>& list) {
        return std::find(list.begin(), list.end(), r);
      };
      const bool known = in(active) != active.end() || in(watched) != watched.end();
      const auto forget = [&] {
        active.erase(std::remove(active.begin(), active.end(), r), active.end());
        watched.erase(std::remove(watched.begin(), watched.end(), r), watched.end());
      };
      switch (random.below(4)) {
        case 0:
          policy.erase(r);
          forget();
          break;
        case 1: {
          RegionIndex out[64];
          const size_t n = policy.watch(out, random.below(8));
          for (size_t i = 0; i < n; ++i) {
            ASSERT_EQ(out[i], active.front());
            watched.push_back(out[i]);
            active.erase(active.begin());
          }
          break;
        }
        default:
          if (known) {
            policy.touch(r);
            forget();
          } else {
            policy.insert(r, kPage, kPage);
          }
          active.push_back(r);
      }
      std::vector<RegionIndex> model = watched;
      model.insert(model.end(), active.begin(), active.end());
      RegionIndex out[64];
      const size_t n = policy.evict(out, 64);
      ASSERT_EQ(std::vector<RegionIndex>(out, out + n), model) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hydrant
