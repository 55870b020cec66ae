// The cache describes its pins: to the client their parts and keys, to the targets of remote pins what
// may be exported, whether more may fit, and which idle exports make room.
#include <hydrant/pin_cache.h>

#include "firehose/cache/domain_registry.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::HasSubstr;

class PinCacheExports : public PinCacheTest {
 protected:
  hydrant_domain_options_t options_in(uint32_t mode, size_t budget_pages = 64) const {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = mode;
    options.merge_bytes = mode == HYDRANT_MODE_REGION ? 1 : 0;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? kPage : 0;
    options.budget_bytes = budget_pages * kPage;
    return options;
  }
  Domain& domain() const { return *find_domain(domain_); }
  ExportView& exports() const { return domain().exports(); }
  MemoryRange range(size_t page, size_t pages = 1) const {
    return {arena_.addr(page), pages * kPage};
  }
  static const RegionSlot* slot_of(hydrant_pin_t pin) {
    return RegionSlot::from_public(pin.region);
  }
  bool describe(hydrant_pin_t pin, MemoryRange requested, ExportView::ExportInfo* out) const {
    return exports().describe(slot_of(pin), requested, out);
  }
  bool may_fit(size_t page, size_t pages) const {
    return exports().may_fit(range(page, pages), Access::kLocalWrite);
  }
  void use(size_t page, size_t pages = 1) {
    ASSERT_EQ(hydrant_release(pin(page, pages)), GASNET_OK) << hydrant_error_text();
  }
};

// ---- descriptions ----

TEST_F(PinCacheExports, RegionIsDescribedUntilItIsUnpinned) {
  create(options_in(HYDRANT_MODE_REGION));
  const hydrant_pin_t held = pin(4, 3);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  ExportView::ExportInfo info;
  ASSERT_TRUE(describe(held, range(5), &info));
  EXPECT_EQ(info.range, range(4, 3));
  EXPECT_EQ(registrar_.serial_of(info.key), serial(held));
  EXPECT_TRUE(info.cached);
  EXPECT_FALSE(info.checked);
  // Dead, and still registered for its holder.
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(4), 1), GASNET_OK);
  EXPECT_TRUE(describe(held, range(5), &info));
  EXPECT_EQ(info.range, range(4, 3));
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_FALSE(describe(held, range(5), &info));
  EXPECT_TRUE(info.key == nullptr && info.range.len == 0 && !info.cached);
}

TEST_F(PinCacheExports, SpanIsDescribedAsItsBucketsUntilItsRelease) {
  for (const bool is_cached : {true, false}) {
    hydrant_domain_options_t options = options_in(HYDRANT_MODE_PAGE);
    options.watch = is_cached ? HYDRANT_WATCH_CLIENT : HYDRANT_WATCH_NONE;
    create(options);
    const hydrant_pin_t held = pin(4, 3);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    ExportView::ExportInfo info;
    ASSERT_TRUE(describe(held, {arena_.addr(4) + 8, 2 * kPage}, &info));
    EXPECT_EQ(info.range, range(4, 3));
    EXPECT_EQ(info.key, nullptr) << "of which bucket?";
    EXPECT_EQ(info.cached, is_cached);
    EXPECT_FALSE(info.checked);
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    EXPECT_FALSE(describe(held, range(4, 3), &info));
    EXPECT_FALSE(info.cached);
    destroy();
  }
}

// A span has as many keys as buckets.
TEST_F(PinCacheExports, KeyOfASpanOrOfNoPinIsNotExported) {
  create(options_in(HYDRANT_MODE_PAGE));
  const hydrant_pin_t span = pin(4, 3);
  const hydrant_pin_t bucket = pin(4);
  ASSERT_TRUE(span.region != nullptr && bucket.region != nullptr) << hydrant_error_text();
  char blob[64];
  size_t len = sizeof blob;
  EXPECT_EQ(hydrant_export_key(span, blob, &len), GASNET_ERR_NOT_INIT);
  EXPECT_THAT(hydrant_error_text(), HasSubstr("hydrant_pin_parts() for pins of several parts"));
  EXPECT_EQ(hydrant_export_key(bucket, blob, &len), HYDRANT_ERR_UNSUPPORTED) << "a key, at least";
  EXPECT_EQ(hydrant_release(span), GASNET_OK);
  // Held while it is dead.
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(4), 1), GASNET_OK);
  EXPECT_EQ(hydrant_export_key(bucket, blob, &len), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(hydrant_release(bucket), GASNET_OK);
  EXPECT_EQ(hydrant_export_key(bucket, blob, &len), GASNET_ERR_NOT_INIT);
  EXPECT_THAT(hydrant_error_text(), HasSubstr("this pin is not live"));
  EXPECT_EQ(hydrant_pin_parts(bucket, 0, nullptr), 0u);
}

TEST_F(PinCacheExports, SpanHasNoPartBeyondItsLast) {
  create(options_in(HYDRANT_MODE_PAGE));
  const hydrant_pin_t span = pin(4, 3);
  ASSERT_NE(span.region, nullptr) << hydrant_error_text();
  hydrant_region_t part{};
  EXPECT_EQ(hydrant_pin_parts(span, 2, &part), 3u);
  EXPECT_TRUE(part.addr == arena_.addr(6) && part.len == kPage);
  EXPECT_EQ(hydrant_pin_parts(span, 3, &part), 3u);
  EXPECT_TRUE(part.addr == 0 && part.len == 0 && part.key == nullptr);
  // A dead bucket is a part as long as the span is held.
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(6), 1), GASNET_OK);
  EXPECT_EQ(hydrant_pin_parts(span, 2, &part), 3u);
  EXPECT_EQ(part.addr, arena_.addr(6));
  EXPECT_EQ(hydrant_release(span), GASNET_OK);
}

// ---- releases and invalidations at odd addresses ----

TEST_F(PinCacheExports, PointerIntoASlotIsNoPin) {
  create(options_in(HYDRANT_MODE_REGION));
  const hydrant_pin_t held = pin(4);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  const auto* inside = reinterpret_cast<const RegionSlot*>(
      reinterpret_cast<uintptr_t>(slot_of(held)) + sizeof(void*));
  EXPECT_EQ(domain().release(inside), Status::kBadArg);
  EXPECT_THAT(hydrant_error_text(), HasSubstr("is not a pin: pass what a pinning call returned"));
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

// The region is dead because a larger one replaced it, and waits for a fence.
TEST_F(PinCacheExports, SecondReleaseOfAReplacedRegionIsRefused) {
  create(options_in(HYDRANT_MODE_REGION));
  const hydrant_pin_t small = pin(4);
  ASSERT_NE(small.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(small), GASNET_OK);
  const hydrant_pin_t large = pin(3, 3);
  ASSERT_NE(large.region, nullptr) << hydrant_error_text();
  ASSERT_EQ(stats_of(domain_).dead_regions, 1u);
  // As hydrant_release() does without debug checks.
  EXPECT_EQ(domain().release(slot_of(small)), Status::kBadArg);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(stats_of(domain_).dead_regions, 1u);
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(stats_of(domain_).dead_regions, 0u);
  EXPECT_EQ(domain().release(slot_of(small)), Status::kBadArg) << "its slot is free";
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(hydrant_release(large), GASNET_OK);
}

TEST_F(PinCacheExports, InvalidationUpToTheEndOfMemoryKeepsWhatLiesBefore) {
  create(options_in(HYDRANT_MODE_REGION));
  use(4);
  use(8);
  use(12);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(8), UINTPTR_MAX - arena_.addr(8) + 1),
            GASNET_OK);
  EXPECT_TRUE(is_cached(4));
  EXPECT_FALSE(is_cached(8) || is_cached(12));
  // The last pages can hold no registration.
  const auto* last = reinterpret_cast<const void*>(UINTPTR_MAX - kPage + 1);
  EXPECT_EQ(hydrant_invalidate(domain_, last, kPage), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(is_cached(4));
}

// ---- room ----

TEST_F(PinCacheExports, HeldMemoryLeavesNoRoomAndDeadMemoryDoes) {
  create(options_in(HYDRANT_MODE_REGION, 16));
  const hydrant_pin_t most = pin(0, 14);
  ASSERT_NE(most.region, nullptr) << hydrant_error_text();
  EXPECT_TRUE(may_fit(40, 2));
  EXPECT_FALSE(may_fit(40, 3));
  EXPECT_TRUE(may_fit(1, 9)) << "registered";
  use(20, 1);
  const hydrant_pin_t replaced = pin(20, 1);
  ASSERT_NE(replaced.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(20), kPage), GASNET_OK);
  EXPECT_EQ(stats_of(domain_).dead_regions, 1u);
  EXPECT_FALSE(may_fit(40, 2)) << "dead, but held";
  EXPECT_TRUE(may_fit(40, 1));
  EXPECT_EQ(hydrant_release(replaced), GASNET_OK);
  EXPECT_TRUE(may_fit(40, 2));
  EXPECT_EQ(hydrant_release(most), GASNET_OK);
  EXPECT_TRUE(may_fit(40, 16)) << "idle";
}

TEST_F(PinCacheExports, DeadMemoryThatNobodyHoldsIsRoom) {
  create(options_in(HYDRANT_MODE_REGION, 64));
  use(0, 1);
  const hydrant_pin_t held = pin(0, 62);  // replaces it
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  ASSERT_EQ(stats_of(domain_).dead_regions, 1u);
  ASSERT_EQ(stats_of(domain_).charged_bytes, 63 * kPage);
  EXPECT_TRUE(may_fit(100, 2));
  EXPECT_FALSE(may_fit(100, 3));
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheExports, BucketsNeedARegionEach) {
  hydrant_domain_options_t options = options_in(HYDRANT_MODE_PAGE);
  options.max_regions = 8;
  create(options);
  const hydrant_pin_t held = pin(0, 6);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_TRUE(may_fit(40, 2));
  EXPECT_FALSE(may_fit(40, 3));
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_TRUE(may_fit(40, 8));
}

TEST_F(PinCacheExports, BytesThatTheKernelKeepsAreNoRoom) {
  create(options_in(HYDRANT_MODE_REGION, 16));
  const hydrant_pin_t held = pin(0, 8);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  use(20, 4);
  registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(20), 4 * kPage), GASNET_OK);
  EXPECT_EQ(stats_of(domain_).pending_bytes, 4 * kPage);
  EXPECT_TRUE(may_fit(40, 4));
  EXPECT_FALSE(may_fit(40, 5));
  registrar_.settle();
  EXPECT_TRUE(may_fit(40, 8));
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheExports, RegistrarWithLessRoomThanTheBudgetIsTried) {
  create(options_in(HYDRANT_MODE_REGION, 16));
  const hydrant_pin_t held = pin(0, 8);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_FALSE(may_fit(40, 9));
  registrar_.allow_bytes(8 * kPage);
  EXPECT_EQ(hydrant_pin_status(pin(40, 2)), GASNET_ERR_NOT_READY);
  ASSERT_LT(stats_of(domain_).budget_bytes, 16 * kPage);
  EXPECT_TRUE(may_fit(40, 9)) << "only the registrar knows";
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheExports, IdleExportsAreUnpinnedOnlyAsFarAsRoomIsShort) {
  create(options_in(HYDRANT_MODE_REGION, 16));
  std::vector<const RegionSlot*> slots;
  std::vector<hydrant_pin_t> pins;
  for (size_t i = 0; i < 4; ++i) {
    pins.push_back(pin(8 * i, 4));
    ASSERT_NE(pins.back().region, nullptr) << hydrant_error_text();
    slots.push_back(slot_of(pins.back()));
  }
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(hydrant_release(pins[i]), GASNET_OK);
  slots.push_back(slots[1]);  // named twice
  exports().evict_if_short(slots.data(), 0, 4 * kPage);
  exports().evict_if_short(slots.data(), slots.size(), 0);
  EXPECT_EQ(registrar_.live(), 4u) << "there is room for nothing";
  exports().evict_if_short(slots.data(), slots.size(), 4 * kPage);
  EXPECT_EQ(registrar_.live(), 3u);
  EXPECT_FALSE(is_cached(8, 4));
  EXPECT_TRUE(is_cached(0, 4)) << "held";
  EXPECT_TRUE(is_cached(16, 4) && is_cached(24, 4)) << "more than needed";
  exports().evict_if_short(slots.data(), slots.size(), 16 * kPage);
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(check_hold(registrar_, pins[0], arena_.addr(0), 4 * kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(pins[0]), GASNET_OK);
}

TEST_F(PinCacheExports, SpanIsNotUnpinnedForRoom) {
  create(options_in(HYDRANT_MODE_PAGE, 4));
  const hydrant_pin_t span = pin(0, 3);
  const hydrant_pin_t bucket = pin(8);
  ASSERT_TRUE(span.region != nullptr && bucket.region != nullptr) << hydrant_error_text();
  const RegionSlot* const slots[] = {slot_of(span), slot_of(bucket)};
  EXPECT_EQ(hydrant_release(span), GASNET_OK);
  EXPECT_EQ(hydrant_release(bucket), GASNET_OK);
  exports().evict_if_short(slots, 2, kPage);
  EXPECT_TRUE(is_cached(0, 3));
  EXPECT_FALSE(is_cached(8));
  EXPECT_EQ(registrar_.live(), 3u);
}

}  // namespace
}  // namespace hydrant::testing
