// Random operations against a naive pin map, in both modes, with large and small budgets, with registrars
// that refuse and fail. HYDRANT_TEST_SEED repeats a run, HYDRANT_TEST_LONG=1 makes it twenty times longer.
#include "tests/model/pin_cache_model.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hydrant::model {
namespace {

constexpr uint64_t kSteps = 100'000;

const ModelSetup kSetups[] = {
    {.name = "RegionRoomy", .budget_pages = 4096, .max_regions = 4096},
    {.name = "RegionTight"},
    {.name = "RegionTiny", .budget_pages = 6, .max_regions = 4},
    {.name = "RegionFewSlots", .max_regions = 3},
    {.name = "RegionNeverMerging", .merge_pages = 0},
    // Many regions that partly overlap.
    {.name = "RegionOverlapping", .budget_pages = 4096, .max_regions = 4096, .merge_pages = 0},
    {.name = "RegionSmallRegions", .max_region_pages = 4},
    {.name = "RegionWithoutKeys", .key_bytes = 0},
    {.name = "RegionLongKeys", .key_bytes = 256},
    {.name = "RegionRefusing", .refusing = true},
    {.name = "RegionRefusingEager", .eager_access = HYDRANT_ACCESS_ALL, .refusing = true},
    {.name = "RegionFailing", .budget_pages = 24, .failing_per_mille = 100},
    {.name = "RegionLateCharges", .budget_pages = 24, .late_charges = true},
    {.name = "RegionUnwatched", .watch = HYDRANT_WATCH_NONE},
    {.name = "PageRoomy", .mode = HYDRANT_MODE_PAGE, .budget_pages = 4096, .max_regions = 4096},
    {.name = "PageTight", .mode = HYDRANT_MODE_PAGE, .budget_pages = 24},
    {.name = "PageTiny", .mode = HYDRANT_MODE_PAGE, .budget_pages = 8, .max_regions = 8},
    {.name = "PageFewSlots", .mode = HYDRANT_MODE_PAGE, .max_regions = 10},
    {.name = "PageBuckets", .mode = HYDRANT_MODE_PAGE, .bucket_pages = 4},
    {.name = "PageWithoutKeys", .mode = HYDRANT_MODE_PAGE, .budget_pages = 24, .key_bytes = 0},
    {.name = "PageLongKeys", .mode = HYDRANT_MODE_PAGE, .budget_pages = 24, .key_bytes = 256},
    {.name = "PageRefusing", .mode = HYDRANT_MODE_PAGE, .refusing = true},
    {.name = "PageFailing",
     .mode = HYDRANT_MODE_PAGE,
     .budget_pages = 24,
     .failing_per_mille = 100},
    {.name = "PageUnwatched", .mode = HYDRANT_MODE_PAGE, .watch = HYDRANT_WATCH_NONE},
};

class PinCacheModelTest : public ::testing::TestWithParam<ModelSetup> {};

TEST_P(PinCacheModelTest, RandomOperationsAgreeWithNaiveMap) {
  const uint64_t seed = testing::test_seed();
  PinCacheModel model(GetParam(), seed);
  const uint64_t steps = kSteps * test_factor();
  for (uint64_t i = 0; i < steps; ++i) {
    const std::string wrong = model.step();
    ASSERT_EQ(wrong, "") << "step " << i << ", HYDRANT_TEST_SEED=" << seed;
  }
  EXPECT_EQ(model.finish(), "") << "HYDRANT_TEST_SEED=" << seed;
  const auto& tally = model.tally();
  EXPECT_GT(tally.pins, steps / 50);
  EXPECT_GT(tally.cached, 0u);
  EXPECT_GT(tally.invalidations, 0u);
  const bool tight = GetParam().budget_pages < 10;
  EXPECT_TRUE(!tight || (tally.not_ready != 0 && tally.too_large != 0));
  EXPECT_TRUE(!GetParam().refusing || tally.refused != 0);
}

INSTANTIATE_TEST_SUITE_P(Setups, PinCacheModelTest, ::testing::ValuesIn(kSetups),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace hydrant::model
