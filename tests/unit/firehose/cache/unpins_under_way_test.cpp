// The regions that are being unpinned, against a set, and waits for them.
#include "firehose/cache/budget/unpins_under_way.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

namespace hydrant::testing {
namespace {

TEST(UnpinsUnderWay, AgreeWithASet) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Parts parts;
    const CacheLock lock(parts.mu);
    auto& infos = parts.store.infos(lock);
    std::map<RegionIndex, MemoryRange> begun;
    for (int step = 0; step < 400; ++step) {
      if (begun.size() < 20 && random.below(2) == 0) {
        const MemoryRange range = at(random.below(50), 1 + random.below(4));
        const RegionIndex r = parts.add_pending(lock, range);
        RegionQueue retired;
        parts.unpins.begin(lock, r, &retired);
        EXPECT_EQ(retired.pop(infos), r);
        begun[r] = range;
      } else if (!begun.empty()) {
        auto ended = begun.begin();
        std::advance(ended, random.below(begun.size()));
        parts.budget.release(lock, {infos[ended->first].charge, 1});
        parts.unpins.end(lock, ended->first);
        parts.free_slots.quarantine(lock, ended->first);
        begun.erase(ended);
      }
      const MemoryRange asked = at(random.below(55), 1 + random.below(3));
      const bool expected = std::any_of(begun.begin(), begun.end(), [&](const auto& each) {
        return each.second.overlaps(asked);
      });
      ASSERT_EQ(parts.unpins.any_overlap(lock, asked), expected) << step;
    }
  }
}

TEST(UnpinsUnderWay, EndOfARegionThatAForkHasForgottenIsIgnored) {
  Parts parts;
  const CacheLock lock(parts.mu);
  RegionQueue retired;
  const RegionIndex kept = parts.add_pending(lock, at(1));
  const RegionIndex lost = parts.add_pending(lock, at(2));
  parts.unpins.begin(lock, lost, &retired);
  parts.unpins.reset_in_child(lock);
  parts.store.infos(lock)[lost] = {};
  parts.unpins.begin(lock, kept, &retired);
  parts.unpins.end(lock, lost);
  EXPECT_TRUE(parts.unpins.any_overlap(lock, at(1)));
  EXPECT_FALSE(parts.unpins.any_overlap(lock, at(2)));
}

TEST(UnpinsUnderWay, WaitsEndAtAnUnpinOrAtTheDeadline) {
  Parts parts;
  RegionIndex r = kNoRegion;
  {
    const CacheLock lock(parts.mu);
    RegionQueue retired;
    r = parts.add_pending(lock, at(1));
    parts.unpins.begin(lock, r, &retired);
    EXPECT_FALSE(parts.unpins.wait(lock, now_ns())) << "nothing was unpinned";
  }
  std::thread unpinner;
  {
    const CacheLock lock(parts.mu);
    unpinner = std::thread([&] {
      const CacheLock lock_of_unpinner(parts.mu);
      parts.unpins.end(lock_of_unpinner, r);
    });
    EXPECT_TRUE(parts.unpins.wait(lock, now_ns() + 60'000'000'000));
    EXPECT_FALSE(parts.unpins.any_overlap(lock, at(1)));
  }
  unpinner.join();
}

}  // namespace
}  // namespace hydrant::testing
