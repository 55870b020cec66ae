// Page mode's pins of several buckets: as many as memory allows, each its own, and none of them at the
// cost of regions.
#include <hydrant/pin_cache.h>

#include "firehose/cache/page_mode/span_table.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

class PinCacheSpans : public PinCacheTest {
 protected:
  void create_pages(uint64_t max_regions) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = HYDRANT_MODE_PAGE;
    options.bucket_bytes = kPage;
    options.max_regions = max_regions;
    create(options);
  }
};

TEST_F(PinCacheSpans, HoldsOfPinnedMemoryNeverRunOut) {
  create_pages(4);
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 5000; ++i) {
    held.push_back(pin(i % 3, 2));
    ASSERT_NE(held.back().region, nullptr) << "hold " << i << ": " << hydrant_error_text();
    ASSERT_EQ(held.back().region->addr, arena_.addr(i % 3));
  }
  EXPECT_EQ(stats_of(domain_).live_holds, held.size());
  EXPECT_EQ(stats_of(domain_).regions, 4u);
  EXPECT_EQ(hydrant_pin_parts(held[7], 0, nullptr), 2u);
  for (const hydrant_pin_t& pin : held) ASSERT_EQ(hydrant_release(pin), GASNET_OK);
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  EXPECT_EQ(hydrant_release(held.back()), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_pin_parts(held.back(), 0, nullptr), 0u);
}

TEST_F(PinCacheSpans, PinManyAcceptsSpans) {
  create_pages(8);
  const std::vector<hydrant_range_t> ranges(4, {arena_.addr(0), 2 * kPage});
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 600; ++i) {
    hydrant_pin_t pins[4];
    ASSERT_EQ(hydrant_pin_many(domain_, ranges.data(), 4, 0, pins), GASNET_OK)
        << i << ": " << hydrant_error_text();
    held.insert(held.end(), pins, pins + 4);
  }
  for (const hydrant_pin_t& pin : held) ASSERT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(PinCacheSpans, SecondReleasesAreNoticedThoughOthersCameSince) {
  create_pages(8);
  const hydrant_pin_t first = pin(0, 2);
  ASSERT_EQ(hydrant_release(first), GASNET_OK);
  for (uint32_t i = 0; i < SpanTable::kRetained; ++i) {
    const hydrant_pin_t other = pin(2, 2);
    ASSERT_NE(other.region, first.region);
    EXPECT_EQ(hydrant_release(first), GASNET_ERR_BAD_ARG);
    ASSERT_EQ(hydrant_release(other), GASNET_OK);
  }
}

TEST_F(PinCacheSpans, ReleasedSpansDoNotGrowTheTable) {
  create_pages(8);
  for (size_t i = 0; i < 20 * SpanTable::kRetained; ++i) {
    ASSERT_EQ(hydrant_release(pin(0, 2)), GASNET_OK);
  }
  EXPECT_LE(stats_of(domain_).shared_table_bytes, 2 * SpanTable::kRetained * 80 + 4096);
}

TEST_F(PinCacheSpans, ChildCanNeitherUseNorReuseItsParents) {
  create_pages(8);
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 300; ++i) held.push_back(pin(0, 2));
  const hydrant_pin_t gone = pin(0, 3);
  ASSERT_EQ(hydrant_release(gone), GASNET_OK);
  const auto child = [&]() -> std::string {
    registrar_.forget_all();
    if (hydrant_release(held[0]) != GASNET_ERR_NOT_INIT) return "the parent's span was released";
    std::vector<hydrant_pin_t> own;
    for (size_t i = 0; i < 300; ++i) own.push_back(pin(1, 2));
    for (const hydrant_pin_t& pin : own) {
      if (pin.region == nullptr) return std::string("no span: ") + hydrant_error_text();
    }
    for (const hydrant_pin_t& pin : held) {
      if (hydrant_release(pin) != GASNET_ERR_NOT_INIT) return "the parent's span was reused";
      if (hydrant_pin_parts(pin, 0, nullptr) != 0) return "the parent's span has parts";
    }
    if (stats_of(domain_).live_holds != own.size()) return "wrong count of holds";
    for (const hydrant_pin_t& pin : own) {
      if (hydrant_release(pin) != GASNET_OK) return "the child's span was not released";
    }
    return registrar_.problems();
  };
  EXPECT_EQ(run_in_child(child, ChildKind::kFork), "");
  EXPECT_EQ(run_in_child(child, ChildKind::kRawClone), "");
  for (const hydrant_pin_t& pin : held) ASSERT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST(SpanTable, ReportsFullAndReusesTheOldest) {
  std::vector<RegionSlot> slots(3);
  SpanTable table;
  ASSERT_TRUE(table.map(slots.data(), slots.size()));
  const auto take = [&table] { return table.take({0x10000, 0x2000}, SpanParts::create(2)); };
  const RegionSlot* a = take();
  const RegionSlot* b = take();
  ASSERT_NE(take(), nullptr);
  SpanParts* refused = SpanParts::create(2);
  EXPECT_EQ(table.take({0x10000, 0x2000}, refused), nullptr);
  std::free(refused);
  EXPECT_EQ(table.live(), 3u);
  EXPECT_EQ(table.live_parts(), 6u);
  std::free(table.free_entry(b));
  std::free(table.free_entry(a));
  EXPECT_EQ(table.free_entry(a), nullptr);
  EXPECT_EQ(table.find(a), nullptr);
  EXPECT_EQ(take(), b);
  EXPECT_EQ(take(), a);
  table.free_all();
}

}  // namespace
}  // namespace hydrant::testing
