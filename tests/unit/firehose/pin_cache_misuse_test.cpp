// A pin is released more often than it was taken, and the release itself does not detect it: the cache
// detects it later from the sum of the holds, logs it, and loses neither budget nor slots.
#include <hydrant/pin_cache.h>

#include "firehose/cache/domain_registry.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>

namespace hydrant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

constexpr size_t kMisuseBudgetPages = 8;

class PinCacheMisuse : public PinCacheTest {
 protected:
  void SetUp() override { create_with_budget(kMisuseBudgetPages, 1); }
  // Releases as hydrant_release() does without debug checks, which would detect a second release at once.
  void release_unchecked(hydrant_pin_t pin) {
    EXPECT_EQ(find_domain(domain_)->release(RegionSlot::from_public(pin.region)), Status::kOk);
  }
  // A region of these pages whose holds sum to `surplus` less than none.
  void over_release(size_t page, size_t pages, int surplus = 1) {
    const hydrant_pin_t held = pin(page, pages);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    for (int i = 0; i < surplus; ++i) release_unchecked(held);
  }
  // The whole budget can be pinned again, and a hold in a used slot counts.
  void expect_all_is_well() {
    for (size_t round = 0; round < 40; ++round) {
      const hydrant_pin_t whole = pin(100 + 8 * round, kMisuseBudgetPages);
      ASSERT_NE(whole.region, nullptr) << hydrant_error_text();
      EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
      EXPECT_EQ(check_hold(registrar_, whole, arena_.addr(100 + 8 * round),
                           kMisuseBudgetPages * kPage, HYDRANT_LOCAL_WRITE),
                "");
      EXPECT_EQ(hydrant_release(whole), GASNET_OK);
    }
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    const hydrant_stats_t stats = stats_of(domain_);
    EXPECT_EQ(stats.regions + stats.dead_regions, 0u);
    EXPECT_EQ(stats.charged_bytes, 0u);
  }
};

TEST_F(PinCacheMisuse, FlushUnpinsAndReports) {
  over_release(0, 4);
  CaptureStderr();
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("was released more often than it was taken"));
  EXPECT_EQ(registrar_.live(), 0u);
  expect_all_is_well();
}

TEST_F(PinCacheMisuse, EvictionReusesAnOverReleasedRegion) {
  over_release(0, kMisuseBudgetPages, 3);
  const hydrant_pin_t other = pin(50, kMisuseBudgetPages);
  ASSERT_NE(other.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(other), GASNET_OK);
  expect_all_is_well();
}

TEST_F(PinCacheMisuse, InvalidationUnpinsIt) {
  over_release(0, 4);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), 4 * kPage), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(stats_of(domain_).dead_regions, 0u);
  expect_all_is_well();
}

TEST_F(PinCacheMisuse, SecondReleaseByAnotherThreadIsFoundToo) {
  const hydrant_pin_t held = pin(0, 4);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  std::thread([&] { release_unchecked(held); }).join();
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  expect_all_is_well();
}

TEST_F(PinCacheMisuse, SurplusReleaseDoesNotAffectLaterHolds) {
  // The first of two holds is released twice, so that the count drops to zero. Later pins are not affected.
  const hydrant_pin_t first = pin(0, 4);
  const hydrant_pin_t second = pin(0, 4);
  ASSERT_EQ(first.region, second.region);
  EXPECT_EQ(hydrant_release(first), GASNET_OK);
  EXPECT_EQ(hydrant_release(second), GASNET_OK);
  release_unchecked(first);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  const hydrant_pin_t next = pin(0, 4);
  ASSERT_NE(next.region, nullptr);
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 1u) << "a hold in the slot of an over-released region counts";
  EXPECT_EQ(hydrant_release(next), GASNET_OK);
  expect_all_is_well();
}

}  // namespace
}  // namespace hydrant::testing
