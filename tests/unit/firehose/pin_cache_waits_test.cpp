// Regression tests of defects found by review: waits that were too long or wrong, work without effect, sums
// that wrapped.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/async_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::testing {
namespace {

using namespace std::chrono_literals;

using PinCacheWaits = AsyncPinCache;

TEST_F(PinCacheWaits, UncachedMemoryCompletesWithAnAsynchronousRegistrar) {
  registrar_.offer_async();
  hydrant_domain_options_t options = options_for(registrar_);
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 3), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(poll_for(answer));
  expect_pinned(answer, 3);
  EXPECT_EQ(registrar_.pin_calls(), 1u);
}

TEST_F(PinCacheWaits, ThreadThatDeferredAPinIsNotMadeToWaitForIt) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 3, 2), GASNET_OK);
  // Only this thread could complete the registration: a wait would never end.
  EXPECT_EQ(hydrant_pin_status(pin(3)), GASNET_ERR_NOT_READY);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(poll_for(answer));
  EXPECT_EQ(hydrant_release(answer.pin), GASNET_OK);
}

TEST_F(PinCacheWaits, CancelledDeferredPinLeavesNoHoldBehind) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 3), GASNET_OK);
  Threads threads;
  threads.start([&] {
    EXPECT_TRUE(wait_until([&] { return answer.times != 0; }));
    EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  });
  destroy();
  threads.join();
  expect_cancelled(answer);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheWaits, OtherRegistrationsDoNotUseUpAWait) {
  create();
  registrar_.sleep_in_pins(300ms);
  const auto take = [&] {
    const hydrant_pin_t held = pin(0);
    EXPECT_NE(held.region, nullptr) << hydrant_error_text();
    if (held.region != nullptr) {
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    }
  };
  Threads threads;
  threads.start(take);
  ASSERT_TRUE(wait_until([&] { return registrar_.pin_calls() == 1; }));
  registrar_.sleep_in_pins(0us);
  threads.start(take);
  // Each iteration wakes the threads that wait for a registration to end.
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(hydrant_release(pin(10)), GASNET_OK);
    EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(10), kPage), GASNET_OK);
  }
  threads.join();
}

TEST_F(PinCacheWaits, DeadlineBoundsTheWaitForARegistrationToo) {
  create();
  registrar_.stop_pins();
  Threads threads;
  threads.start([&] {
    const hydrant_pin_t first = pin(0);
    EXPECT_EQ(hydrant_release(first), GASNET_OK);
  });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  // Would hang until the registrar lets go, which happens after it.
  const hydrant_pin_t late =
      hydrant_pin_wait(domain_, arena_.page(0), kPage, HYDRANT_LOCAL_WRITE, 1'000'000);
  EXPECT_EQ(hydrant_pin_status(late), GASNET_ERR_NOT_READY);
  EXPECT_TRUE(has_text());
  registrar_.resume_pins();
  threads.join();
}

TEST_F(PinCacheWaits, HugeSumsOfRangesAreRefusedNotWrapped) {
  for (const uint32_t mode : {HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE}) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = mode;
    create(options);
    const std::vector<hydrant_range_t> ranges(8192, {arena_.addr(0), size_t{1} << 62});
    std::vector<hydrant_pin_t> pins(ranges.size());
    const int status =
        hydrant_pin_many(domain_, ranges.data(), ranges.size(), HYDRANT_LOCAL_WRITE, pins.data());
    EXPECT_EQ(status, GASNET_ERR_RESOURCE) << hydrant_error_text();
    destroy();
  }
}

TEST_F(PinCacheWaits, DelayedUnchargeIsAwaitedWithoutEviction) {
  create_with_budget(16, 1);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(hydrant_release(pin(2 * i)), GASNET_OK);
  registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(hydrant_pin_status(pin(100)), GASNET_ERR_NOT_READY);
  }
  EXPECT_LE(stats_of(domain_).evictions, 1u) << "bytes on their way back cost more regions";
  registrar_.settle();
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  const hydrant_pin_t at_last = pin(100);
  EXPECT_NE(at_last.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(at_last), GASNET_OK);
}

TEST_F(PinCacheWaits, PollPaysNoFenceForARegionThatStaysHeld) {
  create();
  const hydrant_pin_t held = pin(0);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), kPage), GASNET_OK);
  const uint64_t before = stats_of(domain_).fences;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_LE(stats_of(domain_).fences, before + 1);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheWaits, EverythingHeldIsFoundOutWithoutAFenceEach) {
  create_with_budget(200, 1);
  std::vector<hydrant_pin_t> held;
  for (size_t i = 0; i < 200; ++i) held.push_back(pin(2 * i));
  const uint64_t before = stats_of(domain_).fences;
  EXPECT_EQ(hydrant_pin_status(pin(450)), GASNET_ERR_NOT_READY);
  EXPECT_LE(stats_of(domain_).fences, before + 1);
  EXPECT_EQ(hydrant_release_many(held.data(), held.size()), GASNET_OK);
}

TEST_F(PinCacheWaits, ThreadsOutliveDomainsAndTheOtherWayRound) {
  create();
  std::atomic<bool> stop{false};
  Threads threads;
  threads.start([&] {
    // Alternates between a live domain and domains that end.
    hydrant_domain_options_t options = options_for(registrar_);
    while (!stop) {
      hydrant_domain_t other = 0;
      EXPECT_EQ(hydrant_domain_create(&options, &other), GASNET_OK);
      EXPECT_EQ(hydrant_release(hydrant_pin(other, arena_.page(9), kPage, 0)), GASNET_OK);
      Threads helper;
      helper.start([&] {
        EXPECT_EQ(hydrant_release(hydrant_pin(other, arena_.page(9), kPage, 0)), GASNET_OK);
      });
      helper.join();
      EXPECT_EQ(hydrant_release(pin(5)), GASNET_OK);
      EXPECT_EQ(hydrant_domain_destroy(other, HYDRANT_FINI_UNPIN), GASNET_OK);
      EXPECT_EQ(hydrant_pin_status(hydrant_pin(other, arena_.page(9), kPage, 0)),
                GASNET_ERR_NOT_INIT);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const hydrant_pin_t mine = pin(1);
    EXPECT_EQ(hydrant_release(mine), GASNET_OK);
  }
  stop = true;
  threads.join();
}

}  // namespace
}  // namespace hydrant::testing
