// Many threads in one domain: holds are summed over all of them, several regions at a time, and memory that
// is not cached costs no fence however many there are. bench/many_threads_bench measures the cost.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kManyThreads = 100;

class PinCacheManyThreads : public PinCacheTest {
 protected:
  // Threads that have pinned and wait: each has a state that sums go through.
  void start_threads(const std::function<void(size_t)>& before_the_end = {}) {
    for (size_t t = 0; t < kManyThreads; ++t) {
      threads_.start([this, t, before_the_end] {
        EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
        ++ready_;
        wait_until([this] { return end_.load(); });
        if (before_the_end) before_the_end(t);
      });
    }
    ASSERT_TRUE(wait_until([this] { return ready_.load() == kManyThreads; }));
  }
  void end_threads() {
    end_ = true;
    threads_.join();
  }

  Threads threads_;
  std::atomic<size_t> ready_{0};
  std::atomic<bool> end_{false};
};

TEST_F(PinCacheManyThreads, UncachedMemoryNeedsNoFence) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(hydrant_release(pin(1, 4)), GASNET_OK);
  const hydrant_stats_t stats = stats_of(domain_);
  EXPECT_EQ(stats.misses, 200u);
  EXPECT_EQ(stats.dead_regions, 0u);
  EXPECT_EQ(stats.fences, 0u);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheManyThreads, UncachedPinReleasedTwiceIsNamed) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  const hydrant_pin_t held = pin(1, 4);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_release(held), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(has_text());
}

// A slot that leaves quarantine beside others must not be one that a thread still holds.
TEST_F(PinCacheManyThreads, SlotsAreReusedOnlyWhenNoThreadHoldsThem) {
  create();
  std::vector<hydrant_pin_t> held;
  start_threads([&](size_t t) { EXPECT_EQ(hydrant_release(held[t]), GASNET_OK); });
  for (size_t round = 0; round < 60; ++round) {
    for (size_t page = 1; page < 65; ++page) {
      const hydrant_pin_t taken = pin(2 * page);
      ASSERT_NE(taken.region, nullptr) << hydrant_error_text();
      const bool keep = held.size() < kManyThreads && page % 16 == 0;
      if (keep) {
        held.push_back(taken);
      } else {
        ASSERT_EQ(hydrant_release(taken), GASNET_OK);
      }
    }
    ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(0), 200 * kPage), GASNET_OK);
    for (const hydrant_pin_t& pin : held) {
      ASSERT_EQ(check_hold(registrar_, pin, reinterpret_cast<uintptr_t>(pin.region->addr), kPage,
                           HYDRANT_LOCAL_WRITE),
                "");
    }
  }
  ASSERT_EQ(held.size(), kManyThreads);
  EXPECT_EQ(registrar_.live(), kManyThreads);
  end_threads();  // each thread releases a pin that another thread took
  hydrant_flush(domain_);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheManyThreads, EvictionSkipsRegionsThatAnyThreadHolds) {
  create_with_budget(2 * kManyThreads);
  std::vector<hydrant_pin_t> held(kManyThreads);
  start_threads();
  for (size_t t = 0; t < kManyThreads; ++t) {
    held[t] = pin(2 + 2 * t);
    ASSERT_NE(held[t].region, nullptr) << hydrant_error_text();
  }
  for (size_t page = 0; page < 1000; ++page) {
    const hydrant_pin_t taken = pin(210 + 2 * (page % 150));
    ASSERT_NE(taken.region, nullptr) << hydrant_error_text();
    ASSERT_EQ(hydrant_release(taken), GASNET_OK);
  }
  EXPECT_GT(stats_of(domain_).evictions, 0u);
  for (size_t t = 0; t < kManyThreads; ++t) {
    EXPECT_EQ(check_hold(registrar_, held[t], arena_.addr(2 + 2 * t), kPage, HYDRANT_LOCAL_WRITE),
              "");
    EXPECT_EQ(hydrant_release(held[t]), GASNET_OK);
  }
  end_threads();
  EXPECT_EQ(stats_of(domain_).threads, 1u);
}

}  // namespace
}  // namespace hydrant::testing
