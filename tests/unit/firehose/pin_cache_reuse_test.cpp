// FIREHOSE_ADMISSION=reuse: what a program sees of it, in both modes, beside "every".
#include <hydrant/pin_cache.h>

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>

namespace hydrant::testing {
namespace {

constexpr size_t kBudgetPages = 32;

class PinCacheReuse : public PinCacheTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void open(const char* admission) {
    const ScopedEnv knob("FIREHOSE_ADMISSION", admission);
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = GetParam();
    options.budget_bytes = kBudgetPages * kPage;
    options.merge_bytes = 1;
    create(options);
  }
  // Uses pages [first, first + count) one after the other, so many times; what that adds to the statistics.
  struct Cost {
    uint64_t hits, pins, evictions;
  };
  Cost loop(size_t first, size_t count, int rounds) {
    const hydrant_stats_t before = stats_of(domain_);
    for (int round = 0; round < rounds; ++round) {
      for (size_t page = first; page < first + count; ++page) {
        const hydrant_pin_t held = pin(page);
        EXPECT_NE(held.region, nullptr) << hydrant_error_text();
        EXPECT_EQ(hydrant_release(held), GASNET_OK);
      }
    }
    const hydrant_stats_t after = stats_of(domain_);
    return {after.hits + after.refills - before.hits - before.refills, after.pins - before.pins,
            after.evictions - before.evictions};
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, PinCacheReuse,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE), mode_name);

TEST_P(PinCacheReuse, LoopOverTwiceTheBudgetHitsUnderReuseAlone) {
  open("every");
  EXPECT_EQ(loop(0, 2 * kBudgetPages, 10).hits, 0u);
  destroy();
  open("reuse");
  loop(0, 2 * kBudgetPages, 4);
  const Cost cost = loop(0, 2 * kBudgetPages, 20);
  EXPECT_EQ(cost.hits + cost.pins, 40 * kBudgetPages);
  EXPECT_GT(cost.hits, 12 * kBudgetPages);  // of the 20 that there are in the budget
  // What is used once finds room: only what is kept instead of another one evicts.
  EXPECT_LT(cost.evictions * 8, cost.pins);
}

TEST_P(PinCacheReuse, MemoryWithinTheBudgetIsRegisteredOnce) {
  for (const char* admission : {"every", "reuse"}) {
    open(admission);
    const Cost cost = loop(0, kBudgetPages, 100);
    EXPECT_EQ(cost.pins, kBudgetPages);
    EXPECT_EQ(cost.hits, 99 * kBudgetPages);
    EXPECT_EQ(cost.evictions, 0u);
    destroy();
  }
}

TEST_P(PinCacheReuse, NewPhaseIsKeptAfterFewMisses) {
  open("reuse");
  constexpr size_t kSet = kBudgetPages * 3 / 4;
  loop(0, kSet, 10);
  EXPECT_LT(loop(100, kSet, 50).pins, 4 * kSet);
  // Pages that are never used again teach it to keep nothing that is new.
  for (int i = 0; i < 8; ++i) loop(200, 256, 1);
  EXPECT_LT(loop(200, 256, 1).evictions, 64u);
  EXPECT_LT(loop(30, kSet, 400).pins, 64 * kSet);
  EXPECT_EQ(loop(30, kSet, 10).pins, 0u);
}

TEST_P(PinCacheReuse, PhaseThatComesBackIsKeptAfterFewRounds) {
  open("reuse");
  constexpr size_t kSet = kBudgetPages * 3 / 4;
  for (int phase = 0; phase < 12; ++phase) {
    loop(100 * (phase % 3), kSet, 30);
    if (phase >= 3) {
      EXPECT_LT(loop(100 * (phase % 3), kSet, 10).pins, kSet) << "phase " << phase;
    }
  }
}

TEST_P(PinCacheReuse, PinsOfSeveralRangesAreKept) {
  open("reuse");
  loop(0, 4 * kBudgetPages, 4);
  hydrant_range_t ranges[4];
  for (size_t i = 0; i < 4; ++i) ranges[i] = {arena_.addr(2 * i), kPage};
  for (int round = 0; round < 2; ++round) {
    const uint64_t before = stats_of(domain_).pins;
    hydrant_pin_t pins[4];
    ASSERT_EQ(hydrant_pin_many(domain_, ranges, 4, HYDRANT_LOCAL_WRITE, pins), GASNET_OK);
    EXPECT_EQ(hydrant_release_many(pins, 4), GASNET_OK);
    if (round == 1) {
      EXPECT_EQ(stats_of(domain_).pins, before);
    }
  }
}

TEST_P(PinCacheReuse, RandomUsesAreServedWithinTheBudget) {
  open("reuse");
  registrar_.watch_limits(kBudgetPages * kPage, kBudgetPages);
  std::mt19937_64 random(test_seed());
  std::deque<hydrant_pin_t> held;
  for (int step = 0; step < 20000; ++step) {
    const size_t page = random() % (random() % 2 == 0 ? 8 : 100);
    const size_t pages = 1 + random() % 3;
    held.push_back(pin(page, pages));
    ASSERT_NE(held.back().region, nullptr) << "step " << step << ": " << hydrant_error_text();
    ASSERT_EQ(
        check_hold(registrar_, held.back(), arena_.addr(page), pages * kPage, HYDRANT_LOCAL_WRITE),
        "");
    if (random() % 32 == 0) {
      EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(random() % 100), kPage), GASNET_OK);
    }
    for (; held.size() > random() % 4; held.pop_front())
      EXPECT_EQ(hydrant_release(held.front()), GASNET_OK);
  }
  for (const hydrant_pin_t one : held) EXPECT_EQ(hydrant_release(one), GASNET_OK);
  EXPECT_GT(stats_of(domain_).hits, 1000u);
  EXPECT_EQ(registrar_.problems(), "");
}

// Each registration of a long stream serves many uses, although each use alone would be used once.
TEST_F(PinCacheTest, StreamsAreExtendedUnderReuse) {
  uint64_t pins[2] = {};
  for (const bool by_reuse : {false, true}) {
    const ScopedEnv knob("FIREHOSE_ADMISSION", by_reuse ? "reuse" : "every");
    hydrant_domain_options_t options = options_for(registrar_);
    options.budget_bytes = 128 * kPage;
    options.stream_bytes = 16 * kPage;
    create(options);
    for (int round = 0; round < 8; ++round) {
      for (size_t page = 0; page < 512; ++page) {
        const hydrant_pin_t held = pin(page);
        ASSERT_NE(held.region, nullptr) << hydrant_error_text();
        EXPECT_EQ(hydrant_release(held), GASNET_OK);
      }
    }
    pins[by_reuse ? 1 : 0] = stats_of(domain_).pins;
    destroy();
  }
  EXPECT_LT(pins[1], pins[0] * 5 / 4);
}

}  // namespace
}  // namespace hydrant::testing
