// Callers' mistakes: each returns an error with a text, and changes nothing.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::testing {
namespace {

class PinCacheErrors : public PinCacheTest {
 protected:
  void SetUp() override { create(); }

  // Every kind of pin returns `status` for this request.
  void expect_refused(const void* addr, size_t len, uint32_t access, int status) {
    expect_status(hydrant_pin(domain_, addr, len, access), status);
    expect_status(hydrant_try_pin(domain_, addr, len, access), status);
    expect_status(hydrant_pin_wait(domain_, addr, len, access, 1'000'000), status);
    expect_status(hydrant_partial_pin(domain_, addr, len, access), status);
    const auto fail = [](void* context, hydrant_pin_t) { *static_cast<bool*>(context) = true; };
    bool called = false;
    EXPECT_EQ(hydrant_pin_async(domain_, addr, len, access, fail, &called), status);
    EXPECT_FALSE(called);
    const hydrant_range_t ranges[] = {{arena_.addr(0), kPage},
                                      {reinterpret_cast<uintptr_t>(addr), len}};
    hydrant_pin_t pins[] = {{nullptr, 7}, {nullptr, 7}};
    EXPECT_EQ(hydrant_pin_many(domain_, ranges, 2, access, pins), status);
    EXPECT_TRUE(has_text());
    EXPECT_EQ(pins[0].region, nullptr);
    EXPECT_EQ(pins[0].hold, 7u) << "written although it failed";
  }
  static void expect_status(hydrant_pin_t pin, int status) {
    EXPECT_EQ(pin.region, nullptr);
    EXPECT_EQ(hydrant_pin_status(pin), status) << hydrant_status_name(hydrant_pin_status(pin));
    EXPECT_TRUE(has_text());
  }
};

TEST_F(PinCacheErrors, LengthZeroIsBadArgument) {
  expect_refused(arena_.page(1), 0, HYDRANT_LOCAL_WRITE, GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(1), 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_vouch(domain_, arena_.page(1), 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_unvouch(domain_, arena_.page(1), 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(registrar_.pin_calls(), 0u);
}

TEST_F(PinCacheErrors, WrapAroundIsBadArgument) {
  const auto* high = reinterpret_cast<const void*>(UINTPTR_MAX - 10);
  expect_refused(high, 100, HYDRANT_LOCAL_WRITE, GASNET_ERR_BAD_ARG);
  expect_refused(arena_.page(1), SIZE_MAX, HYDRANT_LOCAL_WRITE, GASNET_ERR_BAD_ARG);
  expect_refused(arena_.page(1), SIZE_MAX - 100, HYDRANT_LOCAL_WRITE, GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_invalidate(domain_, high, 100), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(registrar_.pin_calls(), 0u);
}

TEST_F(PinCacheErrors, LastBytesOfTheAddressSpaceDoNotConfuse) {
  // A valid range whose rounding touches the end: any error with a text, but no call to the registrar.
  for (const size_t back : {size_t{0}, size_t{1}, kPage - 1, kPage, 2 * kPage}) {
    const hydrant_pin_t pin = hydrant_pin(
        domain_, reinterpret_cast<const void*>(UINTPTR_MAX - back), 1, HYDRANT_LOCAL_READ);
    EXPECT_EQ(pin.region, nullptr);
    EXPECT_TRUE(has_text());
  }
  (void)registrar_.take_problems();  // called to pin outside of its arena, it returned BROKEN
}

TEST_F(PinCacheErrors, NullAddressIsNotSpecialButNeverHit) {
  EXPECT_EQ(hydrant_try_pin(domain_, nullptr, kPage, 0).region, nullptr);
  EXPECT_EQ(hydrant_partial_pin(domain_, nullptr, kPage, 0).region, nullptr);
  registrar_.refuse(0, kPage, RecordingRegistrar::kAnyAccess);
  EXPECT_EQ(hydrant_pin(domain_, nullptr, kPage, 0).region, nullptr);
  EXPECT_TRUE(has_text());
  (void)registrar_.take_problems();
}

TEST_F(PinCacheErrors, UnknownRightIsBadArgument) {
  for (const uint32_t access : {16u, 0x80000000u, ~0u}) {
    expect_refused(arena_.page(1), kPage, access, GASNET_ERR_BAD_ARG);
  }
}

TEST_F(PinCacheErrors, NullOutputsAreBadArguments) {
  const hydrant_range_t range{arena_.addr(0), kPage};
  hydrant_pin_t pin{};
  EXPECT_EQ(hydrant_pin_many(domain_, nullptr, 1, 0, &pin), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_pin_many(domain_, &range, 1, 0, nullptr), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_pin_async(domain_, arena_.page(0), kPage, 0, nullptr, nullptr),
            GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_get_stats(domain_, nullptr), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_release_many(nullptr, 1), GASNET_ERR_BAD_ARG);
  const hydrant_domain_options_t options = options_for(registrar_);
  EXPECT_EQ(hydrant_domain_create(&options, nullptr), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_domain_create(nullptr, &domain_), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(has_text());
}

TEST_F(PinCacheErrors, EmptyCallsSucceed) {
  EXPECT_EQ(hydrant_release_many(nullptr, 0), GASNET_OK);
  EXPECT_EQ(hydrant_pin_many(domain_, nullptr, 0, 0, nullptr), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
}

TEST_F(PinCacheErrors, RequestBeyondTheBudgetFailsImmediately) {
  destroy();
  create_with_budget(8);
  EXPECT_EQ(hydrant_pin_status(pin(0, 9)), GASNET_ERR_RESOURCE);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_pin_status(hydrant_pin_wait(domain_, arena_.page(0), 9 * kPage, 0, UINT64_MAX)),
            GASNET_ERR_RESOURCE);
  EXPECT_EQ(registrar_.pin_calls(), 0u) << "the budget is checked before anything is touched";
  const hydrant_pin_t whole = pin(0, 8);
  ASSERT_NE(whole.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_pin_status(pin(100, 1)), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_release(whole), GASNET_OK);
  const hydrant_pin_t after = pin(100, 8);
  ASSERT_NE(after.region, nullptr) << "regions without holds are evicted";
  EXPECT_EQ(hydrant_release(after), GASNET_OK);
}

TEST_F(PinCacheErrors, MoreThanTheLargestRegionIsResource) {
  destroy();
  hydrant_domain_options_t options = options_for(registrar_);
  options.max_region_bytes = 4 * kPage;
  create(options);
  EXPECT_EQ(hydrant_pin_status(pin(0, 5)), GASNET_ERR_RESOURCE);
  EXPECT_TRUE(has_text());
  const hydrant_pin_t fits = pin(0, 4);
  ASSERT_NE(fits.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(fits), GASNET_OK);
}

// ---- handles ----

void expect_not_init(hydrant_domain_t domain, const void* addr) {
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(domain, addr, 1, 0)), GASNET_ERR_NOT_INIT);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_pin_status(hydrant_try_pin(domain, addr, 1, 0)), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_pin_status(hydrant_partial_pin(domain, addr, 1, 0)), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin_wait(domain, addr, 1, 0, 1)), GASNET_ERR_NOT_INIT);
  const hydrant_range_t range{reinterpret_cast<uintptr_t>(addr), 1};
  hydrant_pin_t pin{};
  EXPECT_EQ(hydrant_pin_many(domain, &range, 1, 0, &pin), GASNET_ERR_NOT_INIT);
  const auto ignore = [](void*, hydrant_pin_t) { FAIL() << "called although it was refused"; };
  EXPECT_EQ(hydrant_pin_async(domain, addr, 1, 0, ignore, nullptr), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_invalidate(domain, addr, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_vouch(domain, addr, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_unvouch(domain, addr, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_flush(domain), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_poll(domain), -GASNET_ERR_NOT_INIT);
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  EXPECT_EQ(hydrant_get_stats(domain, &stats), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_key_bytes(domain), 0u);
  EXPECT_EQ(hydrant_import_key(domain, "blob", 4, &pin), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_implicit_key(domain, 0, &pin), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_ERR_NOT_INIT);
}

TEST_F(PinCacheErrors, InvalidHandlesAreNotInit) {
  const hydrant_domain_t garbage[] = {
      0,        1,          63,          64,         domain_ + 1,
      ~domain_, UINT64_MAX, 0xdeadbeefu, 1ull << 63, domain_ ^ (1ull << 40)};
  for (const hydrant_domain_t handle : garbage) {
    if (handle == domain_) continue;
    SCOPED_TRACE(handle);
    expect_not_init(handle, arena_.page(0));
  }
}

TEST_F(PinCacheErrors, HandleOfADestroyedDomainIsNotInit) {
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  const hydrant_domain_t old = domain_;
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  EXPECT_EQ(registrar_.live(), 0u) << "held regions are unpinned too";
  EXPECT_EQ(registrar_.destroyed(), 1u);
  expect_not_init(old, arena_.page(0));
  EXPECT_EQ(hydrant_release(held), GASNET_ERR_NOT_INIT);
  EXPECT_NE(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheErrors, OldHandleIsDeadInARecycledSlot) {
  const hydrant_domain_t old = domain_;
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  for (int i = 0; i < 130; ++i) {  // more often than there are slots
    create();
    ASSERT_NE(domain_, old);
    const hydrant_pin_t fresh = pin(0);
    ASSERT_NE(fresh.region, nullptr);
    ASSERT_EQ(hydrant_pin_status(hydrant_pin(old, arena_.page(0), 1, 0)), GASNET_ERR_NOT_INIT);
    ASSERT_NE(hydrant_release(held), GASNET_OK);
    ASSERT_EQ(stats_of(domain_).live_holds, 1u) << "the old pin's release hit the new domain";
    ASSERT_EQ(hydrant_release(fresh), GASNET_OK);
    destroy();
  }
}

TEST_F(PinCacheErrors, TooManyDomainsIsResource) {
  std::vector<hydrant_domain_t> domains;
  const hydrant_domain_options_t options = options_for(registrar_);
  int status = GASNET_OK;
  while (domains.size() < 1000) {
    hydrant_domain_t domain = 4711;
    status = hydrant_domain_create(&options, &domain);
    if (status != GASNET_OK) {
      EXPECT_EQ(domain, 4711u) << "written although it failed";
      break;
    }
    domains.push_back(domain);
  }
  EXPECT_EQ(status, GASNET_ERR_RESOURCE);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(domains.size(), 63u) << "64 at once, one exists already";
  for (const hydrant_domain_t domain : domains) {
    EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
}

// ---- pins ----

TEST_F(PinCacheErrors, InvalidPinsAreRejected) {
  const hydrant_pin_t zero{};
  EXPECT_EQ(hydrant_release(zero), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_pin_parts(zero, 0, nullptr), 0u);
  const hydrant_pin_t failed = pin(0, 0);
  EXPECT_NE(hydrant_release(failed), GASNET_OK);
  size_t len = 16;
  char blob[16];
  EXPECT_NE(hydrant_export_key(zero, blob, &len), GASNET_OK);
  EXPECT_NE(hydrant_uring_move(zero, arena_.page(0), 1, 0, 0, 0), GASNET_OK);
}

#if HYDRANT_TICKETS
TEST_F(PinCacheErrors, GarbagePinsDoNotCrash) {
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  for (const uint64_t garbage :
       {uint64_t{0}, uint64_t{1}, uint64_t{UINT64_MAX}, held.hold ^ 1, held.hold + 1,
        held.hold ^ (uint64_t{1} << 63), ~held.hold, uint64_t{domain_}}) {
    const hydrant_pin_t wrong{held.region, garbage};
    if (garbage == held.hold) continue;
    const int status = hydrant_release(wrong);
    EXPECT_NE(status, GASNET_OK) << garbage;
  }
  EXPECT_EQ(check_hold(registrar_, held, arena_.addr(0), kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheErrors, DoubleReleaseNeverCorrupts) {
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  const int again = hydrant_release(held);
  EXPECT_EQ(again, GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(has_text());
  const hydrant_pin_t next = pin(0);
  ASSERT_NE(next.region, nullptr);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(check_hold(registrar_, next, arena_.addr(0), kPage, HYDRANT_LOCAL_WRITE), "")
      << "the second release dropped another hold";
  EXPECT_EQ(hydrant_release(next), GASNET_OK);
}

TEST_F(PinCacheErrors, DoubleReleaseAfterUnpin) {
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  const hydrant_pin_t other = pin(7);  // may have taken over the slot
  ASSERT_NE(other.region, nullptr);
  const int again = hydrant_release(held);
  EXPECT_EQ(again, GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(check_hold(registrar_, other, arena_.addr(7), kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(other), GASNET_OK);
}
#endif  // without tickets: pin_cache_misuse_test.cpp

TEST_F(PinCacheErrors, ReleaseManyTriesAllAndReturnsTheFirstError) {
  const hydrant_pin_t pins[] = {pin(0), {}, pin(9)};
  EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
}

TEST_F(PinCacheErrors, KeysAreNotExportedByARegistrarThatCannot) {
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  char blob[64];
  size_t len = sizeof blob;
  EXPECT_EQ(hydrant_export_key(held, blob, &len), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_import_key(domain_, blob, 8, blob), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(hydrant_implicit_key(domain_, 0, blob), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(hydrant_uring_move(held, arena_.page(0), 1, 0, 0, 0), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST(StatusName, UnknownNumbersHaveAName) {
  EXPECT_STREQ(hydrant_status_name(GASNET_ERR_BAD_ARG), "GASNET_ERR_BAD_ARG");
  EXPECT_STREQ(hydrant_status_name(HYDRANT_ERR_REFUSED), "HYDRANT_ERR_REFUSED");
  EXPECT_STREQ(hydrant_status_name(4711), "(unknown status)");
  EXPECT_STREQ(hydrant_status_name(-1), "(unknown status)");
}

}  // namespace
}  // namespace hydrant::testing
