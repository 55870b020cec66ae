// Working sets that just fit a peer's lease: firehoses that overlap would be charged twice.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <random>

namespace hydrant::testing {
namespace {

constexpr size_t kLeasePages = 1024;
// Some of these seeds miss if firehoses are not kept apart, others if small ones are not released first.
constexpr uint32_t kFirstSeed = 7, kLastSeed = 19;

// Two ends, one of which pins parts of pages of the other at random addresses, one at a time.
class RandomPins {
 public:
  explicit RandomPins(uint32_t seed) : random_(seed), world_(settings()) {}

  // Starts without firehoses and pins each of the first `pages` pages nine times on average. Returns the hit
  // rate of the last quarter.
  double hits_of(size_t pages) {
    EXPECT_EQ(hydrant_remote_evict(world_[0].end, 1, world_[1].arena.addr(0), kLeasePages * kPage),
              GASNET_OK);
    world_.settle();
    std::uniform_int_distribution<size_t> page(0, pages - 1);
    const size_t pins = 9 * pages;
    uint64_t before = 0;
    for (size_t i = 0; i < pins; ++i) {
      if (i == pins - pins / 4) before = world_.stats(0).hits;
      RemoteResult result;
      remote_pin(world_, 0, 1, world_[1].arena.addr(page(random_)) + 64, 8, &result);
      world_.settle();
      EXPECT_TRUE(result.held());
      (void)hydrant_remote_release(result.pin);
    }
    return static_cast<double>(world_.stats(0).hits - before) / static_cast<double>(pins / 4);
  }

 private:
  // Half of the target's budget is for leases.
  static RemotePinCluster::Settings settings() {
    RemotePinCluster::Settings settings;
    settings.pages = 2 * kLeasePages;
    settings.domain_bytes = 2 * kLeasePages * kPage;
    settings.inline_delivery = true;
    return settings;
  }

  std::mt19937 random_;
  RemotePinCluster world_;
};

// Regions that smaller sets left registered at the target overlap; so would grants of all of them.
TEST(RemoteOverlap, SetOfTheWholeLeaseIsHitAfterSmallerOnes) {
  for (uint32_t seed = kFirstSeed; seed <= kLastSeed; ++seed) {
    RandomPins pins(seed);
    for (const size_t percent : {10u, 25u, 50u, 75u, 90u, 100u, 100u})
      EXPECT_GE(pins.hits_of(kLeasePages * percent / 100), 0.98) << seed << ": " << percent;
  }
}

TEST(RemoteOverlap, SetBeyondTheLeaseIsHitInPart) {
  RandomPins pins(1);
  EXPECT_GE(pins.hits_of(kLeasePages * 5 / 4), 0.75);
  EXPECT_GE(pins.hits_of(kLeasePages * 2), 0.45);
}

}  // namespace
}  // namespace hydrant::testing
