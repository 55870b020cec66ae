// Texts of the cache: an error text belongs to the failure that it is queried for, and names the request, the
// limit and the remedy; log lines name the domain.
#include <hydrant/pin_cache.h>

#include "firehose/base/log.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/resource.h>

namespace hydrant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class PinCacheErrorTexts : public PinCacheTest {
 protected:
  void create_small(uint64_t pages, size_t largest_pages = 0) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.budget_bytes = pages * kPage;
    options.max_region_bytes = largest_pages * kPage;
    options.merge_bytes = 1;
    create(options);
  }
  std::string request(size_t page, size_t pages) const {
    char text[64];
    std::snprintf(text, sizeof text, "[%#zx, +%zu)", static_cast<size_t>(arena_.addr(page)),
                  pages * kPage);
    return text;
  }
  static void expect_text(hydrant_pin_t pin, int status, const ::testing::Matcher<std::string>& m) {
    EXPECT_EQ(hydrant_pin_status(pin), status) << hydrant_error_text();
    EXPECT_THAT(std::string(hydrant_error_text()), m);
  }
};

// ---- a failure replaces the text of an earlier one ----

TEST_F(PinCacheErrorTexts, NotReadyReplacesAnOlderText) {
  create();
  hydrant_set_error_text("old");
  expect_text(try_pin(0), GASNET_ERR_NOT_READY, HasSubstr("covers the range"));
  hydrant_set_error_text("old");
  expect_text(hydrant_partial_pin(domain_, arena_.page(0), kPage, 0), GASNET_ERR_NOT_READY,
              HasSubstr("nothing of the range is pinned"));
}

TEST_F(PinCacheErrorTexts, NotReadyReplacesAnOlderTextInPageMode) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  create(options);
  for (const size_t pages : {size_t{1}, size_t{3}}) {
    hydrant_set_error_text("old");
    expect_text(try_pin(0, pages), GASNET_ERR_NOT_READY, HasSubstr("covers the range"));
  }
}

TEST_F(PinCacheErrorTexts, CallbackAtTheEndOfTheDomainFindsItsOwnText) {
  create_small(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  struct Seen {
    int status = GASNET_OK;
    std::string text;
  } seen;
  const auto done = [](void* context, hydrant_pin_t pin) {
    *static_cast<Seen*>(context) = {hydrant_pin_status(pin), hydrant_error_text()};
  };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(20), kPage, 0, done, &seen), GASNET_OK);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  hydrant_set_error_text("old");
  destroy();
  EXPECT_EQ(seen.status, GASNET_ERR_NOT_INIT);
  EXPECT_THAT(seen.text, HasSubstr("the domain ended before"));
}

// ---- requests, limits, remedies ----

TEST_F(PinCacheErrorTexts, TooLargeReportsTheRequestAndTheRemedy) {
  create_small(64, 4);
  expect_text(pin(8, 5), GASNET_ERR_RESOURCE,
              AllOf(HasSubstr("domain test"), HasSubstr(request(8, 5)), HasSubstr("16384"),
                    HasSubstr("options.max_region_bytes"), HasSubstr("FIREHOSE_MAX_REGION_SIZE")));
}

TEST_F(PinCacheErrorTexts, RegistrarsOwnLargestRegionIsNotToBeRaised) {
  registrar_.table.max_region_bytes = 4 * kPage;
  create();
  expect_text(pin(8, 5), GASNET_ERR_RESOURCE,
              AllOf(HasSubstr("registrar takes no more"), Not(HasSubstr("FIREHOSE"))));
}

TEST_F(PinCacheErrorTexts, RegistrarIsNotAskedForTheChargeOfMoreThanItTakes) {
  static size_t longest;
  longest = 0;
  registrar_.table.max_region_bytes = 4 * kPage;
  registrar_.table.charge = [](void*, uintptr_t, size_t len) -> uint64_t {
    longest = std::max(longest, len);
    return len;
  };
  create();
  expect_text(pin(8, 5), GASNET_ERR_RESOURCE, HasSubstr("registrar takes no more"));
  const hydrant_range_t ranges[] = {{arena_.addr(0), kPage}, {arena_.addr(8), 5 * kPage}};
  hydrant_pin_t pins[2];
  EXPECT_EQ(hydrant_pin_many(domain_, ranges, 2, HYDRANT_LOCAL_WRITE, pins), GASNET_ERR_RESOURCE);
  EXPECT_LE(longest, 4 * kPage);
}

TEST_F(PinCacheErrorTexts, BeyondTheBudgetNamesTheRemedy) {
  create_small(4);
  expect_text(pin(8, 5), GASNET_ERR_RESOURCE,
              AllOf(HasSubstr("domain test"), HasSubstr(request(8, 5)), HasSubstr("16384"),
                    HasSubstr("options.budget_bytes"), HasSubstr("FIREHOSE_BUDGET")));
  const hydrant_range_t ranges[] = {{arena_.addr(0), 3 * kPage}, {arena_.addr(9), 3 * kPage}};
  hydrant_pin_t pins[2] = {};
  EXPECT_EQ(hydrant_pin_many(domain_, ranges, 2, 0, pins), GASNET_ERR_RESOURCE);
  EXPECT_THAT(hydrant_error_text(), AllOf(HasSubstr("domain test"), HasSubstr("2 ranges"),
                                          HasSubstr("options.budget_bytes")));
}

// The client's ranges are counted, not their buckets.
TEST_F(PinCacheErrorTexts, BeyondTheBudgetCountsRangesInPageModeToo) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = kPage;
  options.budget_bytes = 4 * kPage;
  create(options);
  const hydrant_range_t ranges[] = {{arena_.addr(0), 3 * kPage}, {arena_.addr(9), 3 * kPage}};
  hydrant_pin_t pins[2] = {};
  EXPECT_EQ(hydrant_pin_many(domain_, ranges, 2, 0, pins), GASNET_ERR_RESOURCE);
  EXPECT_THAT(hydrant_error_text(), AllOf(HasSubstr("2 ranges"), HasSubstr("in 6 regions")));
}

TEST_F(PinCacheErrorTexts, HeldBudgetReportsRequestAndHeldBytes) {
  create_small(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  expect_text(pin(20, 2), GASNET_ERR_NOT_READY,
              AllOf(HasSubstr("domain test"), HasSubstr(request(20, 2)), HasSubstr("16384"),
                    HasSubstr("FIREHOSE_BUDGET")));
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
}

TEST_F(PinCacheErrorTexts, RememberedRefusalNamesTheRightsAndHowLong) {
  create();
  registrar_.refuse(arena_.addr(3), kPage, RecordingRegistrar::kAnyAccess);
  EXPECT_EQ(hydrant_pin_status(pin(3)), HYDRANT_ERR_REFUSED);
  expect_text(pin(3, 1, HYDRANT_LOCAL_WRITE), HYDRANT_ERR_REFUSED,
              AllOf(HasSubstr(request(3, 1)), HasSubstr("access local_write"),
                    HasSubstr("remembered for a second, or until invalidated")));
}

TEST_F(PinCacheErrorTexts, RightTheRegistrarLacksIsNamed) {
  registrar_.table.supported_access = HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ;
  create();
  expect_text(pin(0, 1, HYDRANT_REMOTE_ATOMIC), HYDRANT_ERR_REFUSED,
              AllOf(HasSubstr("remote_atomic"), HasSubstr("local_write+remote_read")));
}

TEST_F(PinCacheErrorTexts, RefusedBucketNamesTheRequestToo) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = 4 * kPage;
  create(options);
  registrar_.refuse(arena_.addr(3), kPage, RecordingRegistrar::kAnyAccess);
  expect_text(pin(0, 1), HYDRANT_ERR_REFUSED,
              AllOf(HasSubstr(request(0, 1)), HasSubstr("buckets are pinned whole")));
  expect_text(pin(1, 9), HYDRANT_ERR_REFUSED, HasSubstr(request(1, 9)));
}

TEST_F(PinCacheErrorTexts, AllZeroPinIsInvalid) {
  const hydrant_pin_t zero{};
  EXPECT_EQ(hydrant_pin_status(zero), GASNET_ERR_NOT_INIT);
}

TEST_F(PinCacheErrorTexts, MissingPartIsAllZero) {
  create();
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  hydrant_region_t part{1, 2, &part};
  EXPECT_EQ(hydrant_pin_parts(held, 1, &part), 1u);
  EXPECT_TRUE(part.addr == 0 && part.len == 0 && part.key == nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  part = {1, 2, &part};
  EXPECT_EQ(hydrant_pin_parts({}, 0, &part), 0u);
  EXPECT_TRUE(part.addr == 0 && part.len == 0 && part.key == nullptr);
}

// ---- unpins that fail ----

TEST_F(PinCacheErrorTexts, FailedUnpinsAreCountedApartAndNamed) {
  create();
  EXPECT_EQ(hydrant_release(pin(0, 2)), GASNET_OK);
  registrar_.answer_unpins(HYDRANT_UNPIN_BROKEN);
  CaptureStderr();
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("domain test"), HasSubstr(request(0, 2)), HasSubstr("call for 1")));
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  const hydrant_stats_t stats = stats_of(domain_);
  EXPECT_EQ(stats.unpins, 0u);
  EXPECT_EQ(stats.unpin_failures, 1u);
  EXPECT_EQ(stats.charged_bytes, 0u) << "the charge is released all the same";
  EXPECT_EQ(hydrant_release(pin(50)), GASNET_OK);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(stats_of(domain_).unpins, 1u);
}

// A batch has one result, that of all its unpins.
TEST_F(PinCacheErrorTexts, FailedUnpinIsCountedAloneWithoutBatches) {
  int calls = 0;
  hydrant_registrar_t table{};
  table.size = sizeof table;
  table.user = &calls;
  table.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
  table.unpin = [](void* user, uintptr_t, size_t, const void*) {
    return ++*static_cast<int*>(user) == 2 ? HYDRANT_UNPIN_BROKEN : HYDRANT_UNPIN_DONE;
  };
  for (const bool batches : {false, true}) {
    if (batches) {
      table.unpin_many = [](void*, const hydrant_range_t*, const void* const*, size_t) {
        return HYDRANT_UNPIN_BROKEN;
      };
    }
    hydrant_domain_options_t options = options_for(registrar_);
    options.registrar = &table;
    options.mode = HYDRANT_MODE_REGION;
    options.merge_bytes = 1;
    ASSERT_EQ(hydrant_domain_create(&options, &domain_), GASNET_OK) << hydrant_error_text();
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(hydrant_release(pin(2 * i)), GASNET_OK);
    CaptureStderr();
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    GetCapturedStderr();
    EXPECT_EQ(stats_of(domain_).unpin_failures, batches ? 5u : 1u);
    EXPECT_EQ(stats_of(domain_).unpins, batches ? 0u : 4u);
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
  domain_ = 0;
}

// ---- options that cannot be ----

TEST_F(PinCacheErrorTexts, BudgetBelowOneGranuleIsABadArgument) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.budget_bytes = kPage - 1;
  EXPECT_EQ(hydrant_domain_create(&options, &domain_), GASNET_ERR_BAD_ARG);
  EXPECT_THAT(hydrant_error_text(), HasSubstr("options.budget_bytes = 4095"));
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = 4 * kPage;
  options.budget_bytes = 2 * kPage;
  EXPECT_EQ(hydrant_domain_create(&options, &domain_), GASNET_ERR_BAD_ARG);
  options.budget_bytes = 4 * kPage;
  create(options);
}

TEST_F(PinCacheErrorTexts, KnobBelowOneGranuleIsIgnoredWithAWarning) {
  const ScopedEnv budget("FIREHOSE_BUDGET", "100");
  hydrant_domain_options_t options = options_for(registrar_);
  options.budget_bytes = 0;
  CaptureStderr();
  create(options);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("FIREHOSE_BUDGET=100 is less than 4096 bytes"));
  EXPECT_GE(stats_of(domain_).budget_bytes, kPage);
}

TEST_F(PinCacheErrorTexts, InapplicablePageModeIsReported) {
  const ScopedEnv mode("FIREHOSE_MODE", "page");
  CaptureStderr();
  create();
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("FIREHOSE_MODE=page does not apply"));
}

TEST_F(PinCacheErrorTexts, BucketInRegionModeIsReported) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.bucket_bytes = 8 * kPage;
  CaptureStderr();
  create(options);
  EXPECT_THAT(GetCapturedStderr(),
              HasSubstr("options.bucket_bytes = 32768 has no effect in region mode"));
}

// ---- lines at info and debug ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsAddressSpace = false;
#else
constexpr bool kLimitsAddressSpace = true;
#endif

// In a child: pins with rights whose index does not fit any more.
std::string pin_without_room(hydrant_domain_t domain, const Arena& arena) {
  set_log_level(LogLevel::kInfo);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t least = pages * kPage + (1 << 20);
  const rlimit limit{least, least};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
  for (int i = 0; i < 2; ++i) {
    const hydrant_pin_t pin = hydrant_pin(domain, arena.page(0), kPage, HYDRANT_REMOTE_READ);
    if (pin.region == nullptr || hydrant_release(pin) != GASNET_OK) return hydrant_error_text();
  }
  return stats_of(domain).hits == 0 ? "" : "hits";
}

TEST_F(PinCacheErrorTexts, FullIndexIsLoggedOnceAtInfo) {
  if (!kLimitsAddressSpace) GTEST_SKIP() << "sanitizers need address space without a limit";
  hydrant_domain_options_t options = options_for(registrar_);
  options.max_regions = 1 << 16;  // an index larger than the address space that is left
  create(options);
  EXPECT_EQ(hydrant_release(pin(1)), GASNET_OK);  // the thread's own tables
  CaptureStderr();
  EXPECT_EQ(run_in_child([this] { return pin_without_room(domain_, arena_); }), "");
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("no address space was left for the index"),
                          HasSubstr("raise ulimit -v"), HasSubstr("FIREHOSE_MAX_REGIONS")));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(PinCacheErrorTexts, DomainLogsItsStartAndTotals) {
  set_log_level(LogLevel::kInfo);
  CaptureStderr();
  create_small(64);
  const std::string begin = GetCapturedStderr();
  EXPECT_THAT(begin, AllOf(HasSubstr("info: domain test"), HasSubstr("region mode"),
                           HasSubstr("256 KiB"), HasSubstr("4096 regions")));
  EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
  EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
  CaptureStderr();
  destroy();
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("domain test ends"), HasSubstr("1 misses"),
                                         HasSubstr("1 hits"), HasSubstr("0 unpins")));
  reset_log_level();
}

TEST_F(PinCacheErrorTexts, BudgetShrinkingIsLoggedAtDebug) {
  create_small(64);
  registrar_.allow_bytes(4 * kPage);
  EXPECT_EQ(hydrant_release(pin(0, 4)), GASNET_OK);
  set_log_level(LogLevel::kDebug);
  CaptureStderr();
  EXPECT_EQ(hydrant_release(pin(10, 4)), GASNET_OK) << hydrant_error_text();
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("debug: domain test"), HasSubstr("the registrar has no budget"),
                    HasSubstr("instead of 262144")));
  reset_log_level();
}

}  // namespace
}  // namespace hydrant::testing
