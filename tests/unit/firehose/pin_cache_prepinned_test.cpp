// The client's own registrations: which ranges a domain accepts, what their neighbours cost, and what an
// invalidation leaves of both.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PinCacheOwnRanges : public PinCacheTest {
 protected:
  explicit PinCacheOwnRanges(uint32_t key_bytes = 8) : PinCacheTest(key_bytes) {}

  hydrant_domain_options_t with(const std::vector<hydrant_range_t>& ranges, uint32_t mode,
                                const RecordingRegistrar& registrar) {
    keys_.assign(ranges.size(), &key_);
    hydrant_domain_options_t options = options_for(registrar);
    options.mode = mode;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? 2 * kPage : 0;
    options.merge_bytes = mode == HYDRANT_MODE_REGION ? 1 : 0;
    options.prepinned = ranges.data();
    options.prepinned_keys = keys_.data();
    options.prepinned_count = ranges.size();
    return options;
  }
  hydrant_domain_options_t with(const std::vector<hydrant_range_t>& ranges, uint32_t mode) {
    return with(ranges, mode, registrar_);
  }
  // No domain, and the registrar remains the caller's.
  void expect_refused(const hydrant_domain_options_t& options, int status,
                      const ::testing::Matcher<std::string>& text) {
    EXPECT_EQ(hydrant_domain_create(&options, &domain_), status) << hydrant_error_text();
    EXPECT_THAT(std::string(hydrant_error_text()), text);
    EXPECT_EQ(domain_, 0u);
    EXPECT_EQ(registrar_.destroyed(), 0u);
    EXPECT_EQ(registrar_.pin_calls() + registrar_.unpins(), 0u);
  }
  hydrant_range_t range(size_t page, size_t pages = 1) const {
    return {arena_.addr(page), pages * kPage};
  }

  const uint64_t key_ = 4711;
  std::vector<const void*> keys_;
};

class PinCacheOwnRangesInMode : public PinCacheOwnRanges,
                                public ::testing::WithParamInterface<uint32_t> {};

TEST_P(PinCacheOwnRangesInMode, RangeThatIsNoneIsRefusedByNumber) {
  for (const hydrant_range_t wrong :
       {hydrant_range_t{arena_.addr(8), 0}, hydrant_range_t{UINTPTR_MAX - kPage + 1, 2 * kPage}}) {
    const std::vector<hydrant_range_t> ranges{range(0, 4), wrong, range(12, 4)};
    expect_refused(with(ranges, GetParam()), GASNET_ERR_BAD_ARG, HasSubstr("prepinned range 1"));
  }
}

TEST_P(PinCacheOwnRangesInMode, RangeThatSharesAPageOrBucketIsRefusedWithTheMultiple) {
  const size_t granule = GetParam() == HYDRANT_MODE_PAGE ? 2 * kPage : kPage;
  const auto multiple = HasSubstr("multiples of " + std::to_string(granule) + " bytes");
  for (const hydrant_range_t wrong :
       {hydrant_range_t{arena_.addr(0) + 8, granule}, hydrant_range_t{arena_.addr(0), granule - 8},
        hydrant_range_t{arena_.addr(0), 2 * granule + 8}}) {
    const std::vector<hydrant_range_t> ranges{wrong};
    expect_refused(with(ranges, GetParam()), GASNET_ERR_BAD_ARG,
                   AllOf(multiple, HasSubstr("prepinned range 0")));
  }
}

TEST_P(PinCacheOwnRangesInMode, MoreRegionsThanTheDomainMayHaveAreRefused) {
  // A region or a bucket for each, and in page mode one more in the third range.
  const std::vector<hydrant_range_t> ranges{range(0, 2), range(4, 2), range(8, 4), range(16, 2)};
  hydrant_domain_options_t options = with(ranges, GetParam());
  options.max_regions = 3;
  expect_refused(options, GASNET_ERR_RESOURCE,
                 AllOf(HasSubstr("max_regions = 3"), HasSubstr("prepin fewer"),
                       HasSubstr(GetParam() == HYDRANT_MODE_PAGE ? "prepinned range 2"
                                                                 : "prepinned range 3")));
  options.max_regions = 5;
  create(options);
  EXPECT_EQ(stats_of(domain_).charged_bytes, 0u) << "the client has paid for them";
  EXPECT_TRUE(is_cached(9, 3));
}

TEST_P(PinCacheOwnRangesInMode, RangeWithinAnotherIsRefused) {
  const std::vector<hydrant_range_t> ranges{range(0, 8), range(4, 2)};
  expect_refused(with(ranges, GetParam()), GASNET_ERR_BAD_ARG,
                 AllOf(HasSubstr("overlaps another one"), HasSubstr("prepinned range 1")));
}

// More regions than an invalidation closes at once, before, between and behind the client's own.
TEST_P(PinCacheOwnRangesInMode, InvalidationOfManyRegionsLeavesTheClientsAndThoseOutside) {
  constexpr size_t kOwn = 1200;
  constexpr size_t kMany = 1300;
  constexpr size_t kFirst = kOwn + 8;
  constexpr size_t kPages = kFirst + 2 * kMany + 8;
  Arena arena(kPages);
  RecordingRegistrar registrar(arena, 8);
  const std::vector<hydrant_range_t> ranges{{arena.addr(0), kOwn * kPage}};
  create(with(ranges, GetParam(), registrar));
  const auto take = [&](size_t page) {
    return hydrant_pin(domain_, arena.page(page), kPage, HYDRANT_LOCAL_WRITE);
  };
  const auto cached = [&](size_t page) {
    const hydrant_pin_t hit = hydrant_try_pin(domain_, arena.page(page), kPage, 0);
    return hit.region != nullptr && hydrant_release(hit) == GASNET_OK;
  };
  for (size_t i = 0; i < kMany; ++i) ASSERT_EQ(hydrant_release(take(kFirst + 2 * i)), GASNET_OK);
  const hydrant_pin_t held = take(kFirst);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  ASSERT_EQ(registrar.live(), kMany);

  const size_t last = kFirst + 2 * kMany - 2;  // outside
  EXPECT_EQ(hydrant_invalidate(domain_, arena.page(0), last * kPage), GASNET_OK);
  EXPECT_EQ(registrar.live(), 2u) << "the held one, and the one outside";
  EXPECT_EQ(stats_of(domain_).dead_regions, 1u);
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_FALSE(cached(kFirst));
  EXPECT_FALSE(cached(last - 2));
  EXPECT_TRUE(cached(last));
  for (size_t page = 0; page < kOwn; page += 100) EXPECT_TRUE(cached(page)) << page;
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar.live(), 0u);
  EXPECT_EQ(registrar.problems(), "");
  destroy();
}

// The client undoes its own registrations: the cache has none in the range.
TEST_P(PinCacheOwnRangesInMode, RegistrarThatUnpinsFirstIgnoresThemAndTheirNeighbours) {
  registrar_.table.flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  const std::vector<hydrant_range_t> ranges{range(8, 4)};
  create(with(ranges, GetParam()));
  const hydrant_pin_t before = pin(0, 2);
  const hydrant_pin_t behind = pin(16, 2);
  const hydrant_pin_t own = pin(8, 2);
  ASSERT_TRUE(before.region != nullptr && behind.region != nullptr && own.region != nullptr);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(6), 8 * kPage), GASNET_OK);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(8), 10 * kPage), GASNET_ERR_NOT_READY)
      << "the one behind is held";
  EXPECT_THAT(hydrant_error_text(), HasSubstr("is still registered, because it is held"));
  EXPECT_EQ(hydrant_release(behind), GASNET_OK);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(8), 10 * kPage), GASNET_OK);
  EXPECT_EQ(check_hold(registrar_, before, arena_.addr(0), 2 * kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(before), GASNET_OK);
  EXPECT_EQ(hydrant_release(own), GASNET_OK);
  EXPECT_TRUE(is_cached(8, 4));
  EXPECT_EQ(registrar_.unpins(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheOwnRangesInMode,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE), mode_name);

class PinCacheOwnRangesKeyless : public PinCacheOwnRanges {
 protected:
  PinCacheOwnRangesKeyless() : PinCacheOwnRanges(0) {}
};

TEST_F(PinCacheOwnRangesKeyless, RegistrarWithoutKeysNeedsNone) {
  const std::vector<hydrant_range_t> ranges{range(0, 4)};
  hydrant_domain_options_t options = with(ranges, HYDRANT_MODE_REGION);
  options.prepinned_keys = nullptr;
  create(options);
  EXPECT_TRUE(is_cached(1, 3));
  EXPECT_EQ(registrar_.pin_calls(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
