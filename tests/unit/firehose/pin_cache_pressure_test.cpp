// The cache when there is not enough for all: what a refusal by the registrar costs and for how long,
// what a request that cannot be served costs others, and what a waiting thread does for others
// meanwhile.
#include <hydrant/pin_cache.h>

#include "firehose/watch/rule_clock.hpp"
#include "tests/unit/firehose/async_pin_cache.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

using namespace std::chrono_literals;

class PinCachePressure : public AsyncPinCache {
 protected:
  // The clock stands still but for pass(), in builds that allow it.
#if HYDRANT_MUTANTS
  void SetUp() override {
    AsyncPinCache::SetUp();
    set_rule_time(now_ns());
  }
  void TearDown() override {
    set_rule_time(0);
    AsyncPinCache::TearDown();
  }
  static void pass(std::chrono::nanoseconds time) {
    set_rule_time(rule_now_ns() + static_cast<uint64_t>(time.count()));
  }
#else
  static void pass(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }
#endif

  void refuse_once(size_t page, size_t pages) {
    registrar_.fail_pin(1, GASNET_ERR_NOT_READY);
    EXPECT_EQ(hydrant_pin_status(pin(page, pages)), GASNET_ERR_NOT_READY);
  }
  void expect_pin(size_t page, size_t pages) {
    const hydrant_pin_t held = pin(page, pages);
    EXPECT_NE(held.region, nullptr) << pages << " pages: " << hydrant_error_text();
    if (held.region != nullptr) {
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    }
  }
};

TEST_F(PinCachePressure, RefusedSingleGranuleIsRetried) {
  create_with_budget(8, 1);
  refuse_once(0, 1);
  expect_pin(0, 1);
}

TEST_F(PinCachePressure, RefusalShrinksTheBudgetJustBelowTheRequest) {
  create_with_budget(64, 1);
  refuse_once(0, 32);
  EXPECT_EQ(stats_of(domain_).budget_bytes, 31 * kPage);
  EXPECT_EQ(hydrant_pin_status(pin(0, 32)), GASNET_ERR_NOT_READY);
  expect_pin(0, 31);
}

TEST_F(PinCachePressure, RefusalBoundsTheSumWithHeldRegions) {
  create_with_budget(64, 1);
  const hydrant_pin_t held = pin(100, 20);
  refuse_once(0, 10);
  EXPECT_EQ(stats_of(domain_).budget_bytes, 29 * kPage);
  expect_pin(0, 9);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCachePressure, WholeBudgetIsRetriedWhenNothingIsPinned) {
  create_with_budget(64, 1);
  refuse_once(0, 1);
  pass(1100ms);
  expect_pin(0, 64);
  EXPECT_EQ(stats_of(domain_).budget_bytes, 64 * kPage);
}

TEST_F(PinCachePressure, BudgetRegrowsWithTimeNotWithRequests) {
  create_with_budget(64, 1);
  const hydrant_pin_t held = pin(100, 1);
  refuse_once(0, 20);  // 20 pages stay
  pass(2100ms);
  expect_pin(0, 29);  // 20, 25, 31: two steps for one request
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCachePressure, ReplacedRegionIsUnchargedAlthoughTheBudgetRegrew) {
  create_with_budget(64);
  const hydrant_pin_t held = pin(0, 14);
  refuse_once(100, 16);
  ASSERT_EQ(stats_of(domain_).budget_bytes, 29 * kPage);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  pass(1100ms);  // 36 pages: there is room, but the region was chosen before
  expect_pin(0, 16);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  pass(5s);
  expect_pin(200, 64);
}

// Regions of 16 pages that overlap by two take all of the budget. A use over a border replaces two of them.
class PinCacheCrowded : public PinCachePressure {
 protected:
  void crowd() {
    for (const size_t page : {0, 14, 28, 42}) expect_pin(page, 16);
  }
  void SetUp() override {
    PinCachePressure::SetUp();
    create_with_budget(64);
    crowd();
  }
};

TEST_F(PinCacheCrowded, UseOverABorderReplacesBoth) {
  expect_pin(10, 8);
  EXPECT_EQ(stats_of(domain_).merges, 2u);
  EXPECT_EQ(stats_of(domain_).evictions, 0u);
  EXPECT_TRUE(is_cached(0, 30));
}

TEST_F(PinCacheCrowded, HoldOfOnePageLeavesHalfOfTheBudgetToOthers) {
  // The last border is that of the two unions.
  for (const size_t page : {10, 38, 26}) expect_pin(page, 8);
  const hydrant_pin_t held = pin(5);
  expect_pin(200, 8);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  const hydrant_range_t ranges[] = {{arena_.addr(5), kPage}, {arena_.addr(300), 8 * kPage}};
  hydrant_pin_t pins[2];
  ASSERT_EQ(hydrant_pin_many(domain_, ranges, 2, HYDRANT_LOCAL_WRITE, pins), GASNET_OK)
      << hydrant_error_text();
  EXPECT_EQ(hydrant_release_many(pins, 2), GASNET_OK);
}

TEST_F(PinCacheCrowded, NothingIsReplacedOnceTheKernelGaveBackAChargeLate) {
  registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  EXPECT_EQ(hydrant_pin_status(pin(200, 2)), GASNET_ERR_NOT_READY);  // evicts
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  registrar_.settle();
  crowd();
  expect_pin(10, 8);
  EXPECT_EQ(stats_of(domain_).merges, 0u);
}

TEST_F(PinCacheCrowded, NothingIsReplacedWhileTheKernelChargesWhatIsUnpinned) {
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(50), kPage), GASNET_OK);
  expect_pin(42, 12);
  expect_pin(100, 4);
  registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(100), kPage), GASNET_OK);
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  expect_pin(10, 8);
  EXPECT_EQ(stats_of(domain_).merges, 0u);
  registrar_.settle();
}

TEST_F(PinCachePressure, RequestThatCannotBeServedCostsOthersNoHit) {
  create_with_budget(24, 1);
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 8; ++i) held.push_back(pin(i));
  // Far enough apart for a place each in this thread's table.
  const auto use_all = [&] {
    const uint64_t before = stats_of(domain_).refills;
    for (size_t i = 0; i < 16; ++i) expect_pin(64 + 16 * i, 1);
    return stats_of(domain_).refills - before;
  };
  (void)use_all();
  EXPECT_EQ(use_all(), 0u);
  const uint64_t fences = stats_of(domain_).fences;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(hydrant_pin_status(pin(400, 20)), GASNET_ERR_NOT_READY);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  EXPECT_EQ(use_all(), 0u) << "regions were shut for nothing";
  EXPECT_EQ(hydrant_release_many(held.data(), held.size()), GASNET_OK);
}

TEST_F(PinCachePressure, UnheldRegionsAreFoundAmongManyHeldOnes) {
  create_with_budget(200, 1);
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 198; ++i) held.push_back(pin(i));
  for (int round = 0; round < 20; ++round) {
    expect_pin(300, 1);
    expect_pin(310, 2);
  }
  EXPECT_EQ(hydrant_release_many(held.data(), held.size()), GASNET_OK);
}

TEST_F(PinCachePressure, WaitingThreadRegistersOnlyItsOwnRange) {
  create_with_budget(4, 1);
  const hydrant_pin_t freed = pin(0);
  const hydrant_pin_t held = pin(10, 3);
  PinAnswer answer;
  ASSERT_EQ(ask(answer, 50), GASNET_OK);
  EXPECT_EQ(hydrant_release(freed), GASNET_OK);  // the deferred pin could complete from now on
  const uint64_t before = registrar_.pin_calls();
  // Cannot be served. Registering for the other request might take longer than this may wait.
  const hydrant_pin_t late =
      hydrant_pin_wait(domain_, arena_.page(60), 4 * kPage, HYDRANT_LOCAL_WRITE, 5'000'000);
  EXPECT_EQ(hydrant_pin_status(late), GASNET_ERR_NOT_READY);
  EXPECT_EQ(registrar_.pin_calls(), before);
  EXPECT_EQ(answer.times, 0);
  EXPECT_EQ(hydrant_poll(domain_), 1);
  EXPECT_EQ(answer.times, 1);
  EXPECT_EQ(hydrant_release(answer.pin), GASNET_OK);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCachePressure, WaitingThreadUsesAPinCompletedMeanwhile) {
  create_with_budget(4, 1);
  const hydrant_pin_t freed = pin(0);
  const hydrant_pin_t held = pin(10, 3);
  PinAnswer answer;
  ASSERT_EQ(ask(answer, 50), GASNET_OK);
  EXPECT_EQ(hydrant_release(freed), GASNET_OK);
  expect_pin(50, 1);
  EXPECT_EQ(answer.times, 0);
  const hydrant_pin_t late = hydrant_pin_wait(domain_, arena_.page(60), 4 * kPage,
                                              HYDRANT_LOCAL_WRITE, patient_ns(500'000'000));
  EXPECT_EQ(hydrant_pin_status(late), GASNET_ERR_NOT_READY);
  EXPECT_EQ(answer.times, 1);
  EXPECT_EQ(hydrant_release(answer.pin), GASNET_OK);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
