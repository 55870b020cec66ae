#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>

namespace hydrant {
namespace {

using testing::at;
using testing::kPage;
using testing::Parts;
using testing::Random;

constexpr Access kRights[] = {Access::kLocalRead, Access::kLocalWrite,
                              Access::kLocalWrite | Access::kRemoteRead, Access::kAll};

struct Known {
  RegionIndex region;
  MemoryRange range;
  Access access;
};

void remove(Parts& parts, const CacheLock& lock, RegionIndex r) {
  parts.victims.remove(lock, r);
  parts.retirement.close(lock, r);
  RegionQueue retired;
  parts.epoch.fence(lock);
  parts.retirement.retire(lock, r, &retired);
  parts.settle(lock, &retired);
}

// Random regions against a list: a query finds a region if and only if some region of the list matches.
void compare_with_list(uint32_t seed, bool in_buckets) {
  Random random(seed);
  Parts parts(256, {100'000 * kPage, 1000}, false, in_buckets ? 12 : 0);
  std::vector<Known> known;
  const CacheLock lock(parts.mu);
  for (int step = 0; step < 600; ++step) {
    const MemoryRange range = at(random.below(200), in_buckets ? 1 : 1 + random.below(6));
    const Access access = kRights[random.below(4)];
    const auto clash = [&](const Known& k) {
      return k.access == access && (k.range.covers(range) || range.covers(k.range));
    };
    if (known.size() < 120 && random.below(5) < 3) {
      if (std::any_of(known.begin(), known.end(), clash)) continue;
      known.push_back({parts.add_open(lock, range, access), range, access});
    } else if (!known.empty()) {
      std::swap(known[random.below(known.size())], known.back());
      remove(parts, lock, known.back().region);
      known.pop_back();
    }
    const MemoryRange asked = at(random.below(200), in_buckets ? 1 : 1 + random.below(3));
    const Access need = kRights[random.below(4)];
    const auto answers = [&](const Known& k) {
      return k.range.covers(asked) && includes(k.access, need);
    };
    const RegionIndex found = parts.tables.find(lock, asked, need);
    const auto it =
        std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.region == found; });
    ASSERT_EQ(found != kNoRegion, std::any_of(known.begin(), known.end(), answers))
        << "seed " << seed << ", step " << step;
    if (found != kNoRegion) {
      ASSERT_TRUE(it != known.end() && answers(*it)) << "seed " << seed;
    }
    const auto overlapping = static_cast<size_t>(std::count_if(
        known.begin(), known.end(), [&](const Known& k) { return k.range.overlaps(asked); }));
    ASSERT_EQ(parts.tables.any_overlap(lock, asked), overlapping != 0) << "seed " << seed;
    size_t visited = 0;
    ASSERT_TRUE(parts.tables.each_unlocked(asked, [&](RegionIndex) { ++visited; }));
    ASSERT_EQ(visited, overlapping) << "seed " << seed;
  }
}

TEST(RegionTables, AgreeWithAListInRegionMode) {
  for (uint32_t seed = 1; seed <= 10; ++seed) compare_with_list(seed, false);
}
TEST(RegionTables, AgreeWithAListInPageMode) {
  for (uint32_t seed = 1; seed <= 10; ++seed) compare_with_list(seed, true);
}

// A reader without the mutex shuts what it finds: it must find all.
TEST(RegionTables, OverlappingRegionsAreAllVisitedWithoutTheMutex) {
  Parts parts(256, {100'000 * kPage, 1000});
  const CacheLock lock(parts.mu);
  for (size_t i = 0; i < 200; ++i) parts.add_open(lock, at(i, 100));
  size_t visited = 0;
  EXPECT_TRUE(parts.tables.each_unlocked(at(150), [&](RegionIndex) { ++visited; }));
  EXPECT_EQ(visited, 100u);
  visited = 0;
  EXPECT_TRUE(parts.tables.each_unlocked(at(299), [&](RegionIndex) { ++visited; }));
  EXPECT_EQ(visited, 0u);
}

TEST(RegionTables, FindAndHoldUsesTheRequestedGate) {
  Parts parts;
  testing::FakeThread thread(64);
  RegionIndex r = kNoRegion;
  {
    const CacheLock lock(parts.mu);
    r = parts.add_open(lock, at(3, 2));
  }
  const auto any = [](const RegionSlot&) { return true; };
  const auto find = [&](auto gate, auto try_it) {
    return parts.tables.find_and_hold(gate, thread.state.counts, at(3).addr, at(3).last(),
                                      bits(Access::kLocalWrite), try_it);
  };
  EXPECT_EQ(find(&RegionSlot::gate, any), &parts.store.slot(r));
  EXPECT_EQ(thread.state.counts[r], 1u);
  EXPECT_EQ(find(&RegionSlot::checked_gate, any), nullptr);
  EXPECT_EQ(find(&RegionSlot::gate, [](const RegionSlot&) { return false; }), nullptr);
  EXPECT_EQ(thread.state.counts[r], 1u) << "no hold without success";
  {
    const CacheLock lock(parts.mu);
    parts.tables.close(lock);
  }
  EXPECT_EQ(find(&RegionSlot::gate, any), nullptr);
}

}  // namespace
}  // namespace hydrant
