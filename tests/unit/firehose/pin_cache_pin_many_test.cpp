// Pins of several ranges or buckets at once: what a request may ask for, and that one which fails in the
// middle holds and charges nothing, for lack of budget, of spans or of memory.
#include <hydrant/pin_cache.h>

#include "firehose/cache/domain_registry.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <malloc.h>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMayLimitSpace = false;  // sanitizers need address space of their own
#else
constexpr bool kMayLimitSpace = true;
#endif

// Leaves the process so much more address space than it uses, while it exists.
class LimitedSpace {
 public:
  explicit LimitedSpace(size_t bytes) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit{pages * kPage + bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~LimitedSpace() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  LimitedSpace(const LimitedSpace&) = delete;
  LimitedSpace& operator=(const LimitedSpace&) = delete;

 private:
  rlimit before_{};
};

class PinCachePinMany : public PinCacheTest {
 protected:
  // The first of these pages are the client's own registration.
  hydrant_domain_options_t with_prepinned(uint32_t mode, size_t pages) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = mode;
    options.merge_bytes = mode == HYDRANT_MODE_REGION ? 1 : 0;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? kPage : 0;
    prepinned_ = {arena_.addr(0), pages * kPage};
    options.prepinned = &prepinned_;
    options.prepinned_keys = key_list_;
    options.prepinned_count = 1;
    return options;
  }
  hydrant_range_t range(size_t page, size_t pages = 1) const {
    return {arena_.addr(page), pages * kPage};
  }
  int pin_many(const std::vector<hydrant_range_t>& ranges, std::vector<hydrant_pin_t>* pins) {
    pins->assign(ranges.size(), hydrant_pin_t{nullptr, 7});
    return hydrant_pin_many(domain_, ranges.data(), ranges.size(), HYDRANT_LOCAL_WRITE,
                            pins->data());
  }
  // The request fails with these words, and nothing has changed.
  void expect_refused(const std::vector<hydrant_range_t>& ranges, int status,
                      const ::testing::Matcher<std::string>& text) {
    const hydrant_stats_t before = stats_of(domain_);
    const uint64_t calls = registrar_.pin_calls();
    std::vector<hydrant_pin_t> pins;
    EXPECT_EQ(pin_many(ranges, &pins), status) << hydrant_error_text();
    EXPECT_THAT(std::string(hydrant_error_text()), text);
    for (const hydrant_pin_t& pin : pins) {
      EXPECT_TRUE(pin.region == nullptr && pin.hold == 7) << "written although it failed";
    }
    EXPECT_EQ(registrar_.pin_calls(), calls);
    const hydrant_stats_t after = stats_of(domain_);
    EXPECT_EQ(after.live_holds, before.live_holds);
    EXPECT_EQ(after.charged_bytes, before.charged_bytes);
    EXPECT_EQ(after.regions, before.regions);
  }
  void expect_pinned(const std::vector<hydrant_range_t>& ranges) {
    std::vector<hydrant_pin_t> pins;
    ASSERT_EQ(pin_many(ranges, &pins), GASNET_OK) << hydrant_error_text();
    for (size_t i = 0; i < ranges.size(); ++i) {
      uintptr_t at = ranges[i].addr;
      for_each_part(pins[i], [&](const hydrant_region_t& part) {
        if (part.addr <= at) at = part.addr + part.len;
      });
      EXPECT_GE(at, ranges[i].addr + ranges[i].len) << "range " << i;
    }
    EXPECT_EQ(hydrant_release_many(pins.data(), pins.size()), GASNET_OK);
    EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  }
  // Its registration is the client's: it is not unpinned.
  void destroy_prepinned() {
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    EXPECT_EQ(registrar_.live(), 0u);
    destroy();
  }

  const uint64_t key_ = 4711;
  const void* const key_list_[1] = {&key_};
  hydrant_range_t prepinned_{};
};

// ---- totals ----

TEST_F(PinCachePinMany, ChargesThatWouldWrapAreBeyondTheBudget) {
  registrar_.table.charge = [](void*, uintptr_t, size_t) { return UINT64_MAX / 2 + 2; };
  create();
  expect_refused({range(0), range(4)}, GASNET_ERR_RESOURCE,
                 AllOf(HasSubstr("2 ranges"), HasSubstr(std::to_string(UINT64_MAX))));
}

TEST_F(PinCachePinMany, RangeBeyondTheLargestRegionIsNamed) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.max_region_bytes = 4 * kPage;
  create(options);
  char text[64];
  std::snprintf(text, sizeof text, "[%#zx, +%zu)", static_cast<size_t>(arena_.addr(10)), 5 * kPage);
  expect_refused({range(0), range(10, 5), range(20)}, GASNET_ERR_RESOURCE,
                 AllOf(HasSubstr(text), HasSubstr("more than the largest region")));
}

TEST_F(PinCachePinMany, PrepinnedRangeMayBeLargerThanTheLargestRegion) {
  hydrant_domain_options_t options = with_prepinned(HYDRANT_MODE_REGION, 8);
  options.max_region_bytes = 4 * kPage;
  create(options);
  expect_pinned({range(0, 8), range(20, 4)});
  EXPECT_EQ(registrar_.pins(), 1u);
  expect_refused({range(20), range(0, 9)}, GASNET_ERR_RESOURCE, HasSubstr("largest region"));
  destroy_prepinned();
}

// ---- prepinned memory beside other memory ----

class PinCachePinManyPrepinned : public PinCachePinMany,
                                 public ::testing::WithParamInterface<uint32_t> {};

TEST_P(PinCachePinManyPrepinned, PrepinnedMemoryCostsNoBudget) {
  hydrant_domain_options_t options = with_prepinned(GetParam(), 6);
  options.budget_bytes = 4 * kPage;
  create(options);
  expect_pinned({range(0, 6), range(20, 2), range(30, 2)});
  EXPECT_EQ(stats_of(domain_).charged_bytes, 4 * kPage);
  // Cached regions are charged, and are no more than the budget allows.
  expect_pinned({range(0, 6), range(20, 2), range(30, 2)});
  expect_refused({range(0, 6), range(20, 2), range(40, 3)}, GASNET_ERR_RESOURCE,
                 AllOf(HasSubstr("3 ranges"), HasSubstr("20480 bytes")));
  EXPECT_TRUE(is_cached(30, 2)) << "evicted for a request that cannot be met";
  destroy_prepinned();
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCachePinManyPrepinned,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE), mode_name);

TEST_F(PinCachePinMany, SpanOverPrepinnedBucketsCostsTheOthersOnly) {
  hydrant_domain_options_t options = with_prepinned(HYDRANT_MODE_PAGE, 6);
  options.budget_bytes = 4 * kPage;
  create(options);
  const hydrant_pin_t held = pin(0, 10);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_pin_parts(held, 0, nullptr), 10u);
  EXPECT_EQ(stats_of(domain_).charged_bytes, 4 * kPage);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_pin_status(pin(0, 11)), GASNET_ERR_RESOURCE);
  EXPECT_THAT(hydrant_error_text(), AllOf(HasSubstr("charges 20480 bytes in 5 regions"),
                                          ::testing::Not(HasSubstr("ranges, the first"))));
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  destroy_prepinned();
}

TEST_F(PinCachePinMany, TryPinOfSomeCachedBucketsHoldsNone) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = kPage;
  create(options);
  EXPECT_EQ(hydrant_release(pin(1, 2)), GASNET_OK);
  for (const size_t first : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(hydrant_pin_status(try_pin(first, 3)), GASNET_ERR_NOT_READY);
    EXPECT_EQ(stats_of(domain_).live_holds, 0u) << "held and forgotten";
  }
  EXPECT_EQ(registrar_.pin_calls(), 2u);
}

// ---- spans ----

TEST_F(PinCachePinMany, SpanReleasedTwiceIsRefusedAndLeavesOtherHolds) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = kPage;
  create(options);
  const hydrant_pin_t first = pin(0, 2);
  const hydrant_pin_t second = pin(0, 2);
  ASSERT_NE(first.region, second.region) << hydrant_error_text();
  Domain& domain = *find_domain(domain_);
  const RegionSlot* slot = RegionSlot::from_public(first.region);
  EXPECT_EQ(hydrant_release(first), GASNET_OK);
  // As hydrant_release() does without debug checks, which would detect it at once.
  EXPECT_EQ(domain.release(slot), Status::kBadArg);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(stats_of(domain_).live_holds, 1u) << "the second span is held still";
  EXPECT_EQ(hydrant_pin_parts(second, 0, nullptr), 2u);
  EXPECT_EQ(hydrant_release(second), GASNET_OK);
}

// Few slots for spans are left by an address space that is limited.
class PinCacheFewSpans : public PinCachePinMany {
 protected:
  static constexpr size_t kMostSpans = 300'000;

  // Sets is_short_, unless earlier tests of the process have left an arena, or used address space.
  void create_short() {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = HYDRANT_MODE_PAGE;
    options.bucket_bytes = kPage;
    options.max_regions = 16;
    is_short_ = hydrant_domain_create(&options, &domain_) == GASNET_OK &&
                find_domain(domain_)->arena().count < kMostSpans;
  }
  // Pins two buckets until no span is left but `spared`.
  void take_all_but(size_t spared) {
    while (held_.size() < kMostSpans) {
      const hydrant_pin_t span = pin(0, 2);
      if (span.region == nullptr) break;
      held_.push_back(span);
    }
    EXPECT_EQ(hydrant_pin_status(pin(4, 3)), GASNET_ERR_RESOURCE);
    EXPECT_THAT(hydrant_error_text(),
                HasSubstr(std::to_string(held_.size()) + " such pins are held"));
    for (size_t i = 0; i < spared; ++i) release_one();
  }
  void release_one() {
    ASSERT_EQ(hydrant_release(held_.back()), GASNET_OK);
    held_.pop_back();
  }
  void release_all() {
    while (!held_.empty()) release_one();
    EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  }

  std::vector<hydrant_pin_t> held_;
  bool is_short_ = false;
};

TEST_F(PinCacheFewSpans, PinsThatFindNoSpanHoldNothing) {
  if (!kMayLimitSpace) GTEST_SKIP() << "sanitizers need address space without a limit";
  const LimitedSpace limit(size_t{64} << 20);
  create_short();
  if (!is_short_)
    GTEST_SKIP() << "earlier tests of this process have left an arena, or used address space";
  take_all_but(0);
  const hydrant_stats_t before = stats_of(domain_);
  EXPECT_EQ(hydrant_pin_status(pin(0, 3)), GASNET_ERR_RESOURCE);
  EXPECT_EQ(stats_of(domain_).live_holds, before.live_holds) << "its buckets are held still";
  const hydrant_pin_t bucket = pin(0);
  ASSERT_NE(bucket.region, nullptr) << "a bucket needs no span: " << hydrant_error_text();
  EXPECT_EQ(hydrant_release(bucket), GASNET_OK);
  release_all();
  expect_pinned({range(0, 3)});
}

TEST_F(PinCacheFewSpans, PinManyThatFindsTooFewSpansReturnsThoseItTook) {
  if (!kMayLimitSpace) GTEST_SKIP() << "sanitizers need address space without a limit";
  const LimitedSpace limit(size_t{64} << 20);
  create_short();
  if (!is_short_)
    GTEST_SKIP() << "earlier tests of this process have left an arena, or used address space";
  take_all_but(1);
  // A bucket, a span for which there is room, another for which there is none, and a bucket.
  const std::vector<hydrant_range_t> ranges{range(1), range(4, 2), range(8, 3), range(12)};
  const hydrant_stats_t before = stats_of(domain_);
  std::vector<hydrant_pin_t> pins;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pin_many(ranges, &pins), GASNET_ERR_RESOURCE);
    EXPECT_THAT(hydrant_error_text(), HasSubstr("is several buckets, and"));
    for (const hydrant_pin_t& pin : pins) EXPECT_EQ(pin.region, nullptr);
    EXPECT_EQ(stats_of(domain_).live_holds, before.live_holds) << "attempt " << i;
  }
  release_one();
  ASSERT_EQ(pin_many(ranges, &pins), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(hydrant_release_many(pins.data(), pins.size()), GASNET_OK);
  release_all();
}

// ---- no memory ----

TEST_F(PinCachePinMany, LackOfMemoryForALargeRequestIsReturnedAndHoldsNothing) {
  if (!kMayLimitSpace) GTEST_SKIP() << "sanitizers need address space without a limit";
  // 64 MiB for the ranges of the buckets: more than malloc() has reserved for a thread.
  constexpr size_t kBuckets = size_t{1} << 22;
  hydrant_domain_options_t options = options_for(registrar_);
  options.mode = HYDRANT_MODE_PAGE;
  options.bucket_bytes = kPage;
  options.max_regions = kBuckets;
  options.budget_bytes = kBuckets * kPage;
  create(options);
  EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);  // the thread's own tables
  (void)malloc_trim(0);
  {
    const LimitedSpace limit(size_t{16} << 20);
    expect_refused({range(0, kBuckets)}, GASNET_ERR_RESOURCE, HasSubstr("pins of several ranges"));
    EXPECT_EQ(hydrant_pin_status(pin(0, kBuckets)), GASNET_ERR_RESOURCE);
    EXPECT_THAT(hydrant_error_text(), HasSubstr("a pin of several buckets"));
    EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  }
  expect_pinned({range(0, 8), range(20)});
}

}  // namespace
}  // namespace hydrant::testing
