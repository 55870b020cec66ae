// Deferred unpins: the amount of dead memory from which a miss unpins at once, and that held dead regions are
// not visited repeatedly.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace hydrant::testing {
namespace {

// A larger region makes the smaller ones that it covers dead without checking whether they are held.
class PinCacheDeadRegions : public PinCacheTest {
 protected:
  void create_with(uint64_t budget_bytes) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.budget_bytes = budget_bytes;
    options.merge_bytes = 1;  // neighbours stay apart
    create(options);
  }
  void use(size_t page, size_t pages) {
    const hydrant_pin_t held = pin(page, pages);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    ASSERT_EQ(hydrant_release(held), GASNET_OK);
  }
  uint64_t dead() const { return stats_of(domain_).dead_regions; }
};

TEST_F(PinCacheDeadRegions, UnpinOfAnEighthOfTheBudgetIsDeferred) {
  create_with(64 * kPage);
  use(0, 8);
  use(0, 12);
  EXPECT_EQ(dead(), 1u);
  EXPECT_EQ(registrar_.live(), 2u);
  use(100, 1);
  EXPECT_EQ(registrar_.live(), 3u) << "a fence for little";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(dead(), 0u);
  EXPECT_EQ(registrar_.live(), 2u);
}

TEST_F(PinCacheDeadRegions, MoreThanAnEighthOfTheBudgetDoesNot) {
  create_with(64 * kPage);
  use(0, 9);
  use(0, 12);
  EXPECT_EQ(dead(), 0u);
  EXPECT_EQ(registrar_.live_bytes(), 12 * kPage);
}

TEST_F(PinCacheDeadRegions, ManySmallOnesAddUpToAnEighth) {
  create_with(128 * kPage);
  for (size_t page = 0; page < 16; ++page) use(2 * page, 1);
  use(0, 32);
  EXPECT_EQ(dead(), 16u);
  use(100, 1);
  use(100, 2);
  EXPECT_EQ(dead(), 0u) << "17 pages of 128";
  EXPECT_EQ(registrar_.live_bytes(), 34 * kPage);
}

TEST_F(PinCacheDeadRegions, ManyRegionsDoNotWaitHoweverSmall) {
  create_with(64 * kMiB);
  for (size_t page = 0; page < 31; ++page) use(2 * page, 1);
  use(0, 62);
  EXPECT_EQ(dead(), 31u);
  use(100, 1);
  use(100, 2);
  EXPECT_EQ(dead(), 0u);
  EXPECT_EQ(registrar_.live(), 2u);
}

TEST_F(PinCacheDeadRegions, HeldDeadRegionCostsLaterMissesNoFence) {
  create_with(64 * kPage);
  const hydrant_pin_t held = pin(0, 16);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  use(0, 20);
  EXPECT_EQ(dead(), 1u);
  const uint64_t fences = stats_of(domain_).fences;
  EXPECT_GE(fences, 1u) << "it was not looked at";
  for (size_t page = 100; page < 108; page += 2) use(page, 1);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  EXPECT_EQ(dead(), 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(dead(), 0u);
  EXPECT_EQ(registrar_.live_bytes(), 24 * kPage);
}

TEST_F(PinCacheDeadRegions, InvalidatedHeldRegionIsVisitedOnce) {
  create_with(64 * kPage);
  const hydrant_pin_t held = pin(0, 16);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(0), kPage), GASNET_OK);
  use(100, 1);
  const uint64_t fences = stats_of(domain_).fences;
  for (size_t page = 102; page < 110; page += 2) use(page, 1);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  EXPECT_EQ(dead(), 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(registrar_.live_bytes(), 5 * kPage);
}

}  // namespace
}  // namespace hydrant::testing
