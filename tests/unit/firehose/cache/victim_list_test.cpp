// The list of possible victims: the policy knows exactly the regions whose information says so.
#include "firehose/cache/budget/victim_list.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <gtest/gtest.h>

#include <set>

namespace hydrant::testing {
namespace {

class RecordingPolicy final : public VictimPolicy {
 public:
  void insert(RegionIndex region, size_t len, uint64_t charge) noexcept override {
    EXPECT_TRUE(known.insert(region).second) << "inserted twice";
    last_len = len;
    last_charge = charge;
  }
  void touch(RegionIndex) noexcept override {}
  void erase(RegionIndex region) noexcept override { EXPECT_EQ(known.erase(region), 1u); }
  size_t watch(RegionIndex*, size_t) noexcept override { return 0; }
  size_t evict(RegionIndex*, size_t) noexcept override { return 0; }

  std::set<RegionIndex> known;
  size_t last_len = 0;
  uint64_t last_charge = 0;
};

TEST(VictimList, PolicyKnowsWhatIsListed) {
  Parts parts;
  RecordingPolicy policy;
  VictimList victims(parts.store, policy);
  const CacheLock lock(parts.mu);
  auto& infos = parts.store.infos(lock);
  std::vector<RegionIndex> regions;
  for (size_t i = 0; i < 16; ++i) {
    regions.push_back(parts.add_pending(lock, at(3 * i, 2)));
    infos[regions.back()].charge = 1000 + i;
  }
  Random random(1);
  for (int step = 0; step < 500; ++step) {
    const size_t i = random.below(regions.size());
    const RegionIndex r = regions[i];
    if (!infos[r].listed && random.below(2) == 0) {
      victims.add(lock, r);
      EXPECT_EQ(policy.last_len, 2 * kPage);
      EXPECT_EQ(policy.last_charge, 1000 + i);
    } else {
      victims.remove(lock, r);  // without effect if it is not listed
      EXPECT_FALSE(infos[r].listed);
    }
    for (const RegionIndex each : regions)
      ASSERT_EQ(policy.known.count(each) == 1, infos[each].listed) << step;
  }
  EXPECT_EQ(&victims.policy(lock), &policy);
}

}  // namespace
}  // namespace hydrant::testing
