// Calls that are pinning while their memory is invalidated, over a registrar that must unpin before the
// memory is released: the invalidation returns OK only after they have returned, whatever they are doing.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

namespace hydrant::testing {
namespace {

// The cache queries the charge of a range before it records the registration: a pin can be stopped there
// while the cache knows nothing of it.
std::atomic<int> g_charges{0};
std::atomic<int> g_stop_at{0};  // the number of the call that waits
std::atomic<bool> g_may_go_on{false};

uint64_t charge(void* /*user*/, uintptr_t /*addr*/, size_t len) {
  if (++g_charges == g_stop_at) (void)wait_until([] { return g_may_go_on.load(); });
  return len;
}

class PinCacheBegun : public PinCacheTest {
 protected:
  void create_with(uint32_t mode, size_t budget_pages) {
    registrar_.table.flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
    registrar_.table.charge = &charge;
    registrar_.table.pending_charge = nullptr;
    g_charges = g_stop_at = 0;
    g_may_go_on = false;
    hydrant_domain_options_t options = options_for(registrar_);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.mode = mode;
    options.budget_bytes = budget_pages * kPage;
    create(options);
  }
  int invalidate(size_t page, size_t pages = 1) {
    return hydrant_invalidate(domain_, arena_.page(page), pages * kPage);
  }
  // A thread that stops in the next question for a charge but `skipped`.
  void start_pin(Threads& threads, size_t page, size_t pages, int skipped = 0) {
    g_stop_at = g_charges + 1 + skipped;
    threads.start([=, this] {
      const hydrant_pin_t held = pin(page, pages);
      ASSERT_NE(held.region, nullptr) << hydrant_error_text();
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
    ASSERT_TRUE(wait_until([] { return g_charges == g_stop_at; }));
  }
};

TEST_F(PinCacheBegun, UnregisteredPinCounts) {
  create_with(HYDRANT_MODE_REGION, 64);
  Threads threads;
  start_pin(threads, 8, 4);
  EXPECT_EQ(invalidate(9), GASNET_ERR_NOT_READY);
  EXPECT_EQ(invalidate(12), GASNET_OK) << "beside it";
  g_may_go_on = true;
  threads.join();
  EXPECT_EQ(registrar_.pins(), 1u);
  EXPECT_EQ(invalidate(9), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

// The client repeats the invalidation meanwhile, which must not keep the pin from ending.
TEST_F(PinCacheBegun, RegistrationInFlightIsKept) {
  create_with(HYDRANT_MODE_REGION, 64);
  registrar_.stop_pins();
  Threads threads;
  threads.start([&] { EXPECT_EQ(hydrant_release(pin(8, 4)), GASNET_OK); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(invalidate(8, 4), GASNET_ERR_NOT_READY) << i;
  registrar_.resume_pins();
  threads.join();
  EXPECT_EQ(registrar_.pins(), 1u);
  EXPECT_EQ(invalidate(8, 4), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheBegun, LaterBucketsCount) {
  create_with(HYDRANT_MODE_PAGE, 64);
  Threads threads;
  // The charge is queried twice for the total of two buckets, and once for each bucket.
  start_pin(threads, 8, 2, 4);
  EXPECT_EQ(registrar_.pins(), 0u);
  EXPECT_EQ(invalidate(9), GASNET_ERR_NOT_READY);
  g_may_go_on = true;
  threads.join();
  EXPECT_EQ(invalidate(8, 2), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheBegun, PinWaitingForBudgetCounts) {
  create_with(HYDRANT_MODE_REGION, 4);
  const hydrant_pin_t all = pin(20, 4);
  ASSERT_NE(all.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(invalidate(8), GASNET_OK);
  Threads threads;
  std::atomic<bool> is_done{false};
  threads.start([&] {
    constexpr uint64_t kMinute = 60'000'000'000;
    const hydrant_pin_t held = hydrant_pin_wait(domain_, arena_.page(8), kPage, 0, kMinute);
    EXPECT_EQ(hydrant_release(held), GASNET_OK) << hydrant_error_text();
    is_done = true;
  });
  ASSERT_TRUE(wait_until([] { return g_charges >= 8; })) << "it tries again and again";
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(invalidate(8), GASNET_ERR_NOT_READY) << i;
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  threads.join();
  EXPECT_TRUE(is_done);
  EXPECT_EQ(invalidate(8), GASNET_OK);
}

TEST_F(PinCacheBegun, DeferredPinCounts) {
  create_with(HYDRANT_MODE_REGION, 4);
  const hydrant_pin_t all = pin(20, 4);
  ASSERT_NE(all.region, nullptr) << hydrant_error_text();
  struct Answer {
    hydrant_domain_t domain;
    void* page;
    int times = 0;
    int after_release = -1;
  } answer{domain_, arena_.page(8)};
  const auto done = [](void* context, hydrant_pin_t held) {
    auto* a = static_cast<Answer*>(context);
    ++a->times;
    EXPECT_EQ(hydrant_invalidate(a->domain, a->page, kPage), GASNET_ERR_NOT_READY) << "held";
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    a->after_release = hydrant_invalidate(a->domain, a->page, kPage);
  };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(8), kPage, 0, done, &answer), GASNET_OK);
  EXPECT_EQ(answer.times, 0);
  EXPECT_EQ(invalidate(8), GASNET_ERR_NOT_READY);
  EXPECT_EQ(invalidate(9), GASNET_OK);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 1);
  EXPECT_EQ(answer.times, 1);
  EXPECT_EQ(answer.after_release, GASNET_OK) << "in its callback, too";
  EXPECT_EQ(invalidate(8), GASNET_OK);
}

TEST_F(PinCacheBegun, FailedPinDoesNotCount) {
  create_with(HYDRANT_MODE_REGION, 4);
  const hydrant_pin_t all = pin(20, 4);
  ASSERT_NE(all.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(pin(8).region, nullptr);
  EXPECT_EQ(try_pin(8).region, nullptr);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin_wait(domain_, arena_.page(8), kPage, 0, 1)),
            GASNET_ERR_NOT_READY);
  EXPECT_EQ(invalidate(8), GASNET_OK);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
