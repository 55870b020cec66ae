// Rules of the control path that hits rely on and that no single result shows: what must be fenced, what
// stays open, which slots may be used again.
#include "tests/unit/firehose/pin_cache_test_util.hpp"

namespace hydrant::testing {
namespace {

class PinCacheInvariants : public PinCacheTest {
 protected:
  // Pinned twice, so that the second time was a hit of this thread's own table.
  void use(size_t page, size_t pages = 1) {
    for (int i = 0; i < 2; ++i) {
      const hydrant_pin_t held = pin(page, pages);
      ASSERT_NE(held.region, nullptr) << hydrant_error_text();
      ASSERT_EQ(hydrant_release(held), GASNET_OK);
    }
  }
  void invalidate(size_t page, size_t pages = 1) {
    ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(page), pages * kPage), GASNET_OK);
  }
};

TEST_F(PinCacheInvariants, LastReleaseOfAnInvalidatedRegionUnpinsIt) {
  create();
  use(0);
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  invalidate(0);
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u) << "left to a later poll although no thread raced";
}

TEST_F(PinCacheInvariants, UnpinFollowsAFenceAfterShutting) {
  create();
  use(0);
  const uint64_t before = stats_of(domain_).fences;
  invalidate(0);
  EXPECT_EQ(stats_of(domain_).fences, before + 1);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheInvariants, SlotIsReusedOnlyAfterAnotherFence) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.merge_bytes = 1;
  create(options);
  use(0);
  const hydrant_pin_t first = pin(0);
  const hydrant_region_t* slot = first.region;
  ASSERT_EQ(hydrant_release(first), GASNET_OK);
  use(10);
  invalidate(0);  // its slot is empty since this fence, so a late holder may still read it
  const hydrant_pin_t second = pin(20);
  ASSERT_NE(second.region, nullptr);
  EXPECT_NE(second.region, slot);
  invalidate(10);  // after this second fence no thread can
  const hydrant_pin_t third = pin(30);
  EXPECT_EQ(third.region, slot);
  EXPECT_EQ(hydrant_release(second), GASNET_OK);
  EXPECT_EQ(hydrant_release(third), GASNET_OK);
}

TEST_F(PinCacheInvariants, FailedEvictionLeavesTheCacheUnchanged) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.budget_bytes = 4 * kPage;
  options.merge_bytes = 1;
  registrar_.table.charge = nullptr;  // a region is charged its length
  options.registrar = &registrar_.table;
  create(options);
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  use(10);
  use(20);
  EXPECT_EQ(hydrant_pin_status(pin(100, 4)), GASNET_ERR_NOT_READY);
  const hydrant_stats_t before = stats_of(domain_);
  ASSERT_EQ(hydrant_release(pin(10)), GASNET_OK);
  ASSERT_EQ(hydrant_release(pin(20)), GASNET_OK);
  const hydrant_stats_t after = stats_of(domain_);
  EXPECT_EQ(after.hits, before.hits + 2) << "their gates were left shut";
  EXPECT_EQ(after.evictions, before.evictions);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheInvariants, MergedRegionGrantsTheRightsOfItsParts) {
  create();
  ASSERT_EQ(hydrant_release(pin(0, 2, HYDRANT_LOCAL_WRITE)), GASNET_OK);
  ASSERT_EQ(hydrant_release(pin(2, 2, HYDRANT_LOCAL_READ)), GASNET_OK);
  const hydrant_pin_t both = try_pin(0, 4, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(both.region, nullptr) << "the neighbour's right was lost, or they were not merged";
  EXPECT_EQ(hydrant_release(both), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
