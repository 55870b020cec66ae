// Pins that complete later: requests that wait for budget, registrars that complete on their own time.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/async_pin_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>

namespace hydrant::testing {
namespace {

using namespace std::chrono_literals;

using PinCacheAsync = AsyncPinCache;

TEST_F(PinCacheAsync, CachedPinCompletesBeforeTheCallReturns) {
  create();
  EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 0), GASNET_OK);
  expect_pinned(answer, 0);
  EXPECT_EQ(hydrant_poll(domain_), 0) << "answered twice";
}

TEST_F(PinCacheAsync, MissWithASynchronousRegistrarCompletesOnce) {
  create();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 0, 3), GASNET_OK);
  ASSERT_TRUE(poll_for(answer));
  expect_pinned(answer, 0, 3);
}

TEST_F(PinCacheAsync, NotNowBecomesACallbackWhenBudgetIsBack) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  std::array<PinAnswer, 3> answers;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ask(answers[i], 20 + 10 * i, 4), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  for (const PinAnswer& answer : answers) EXPECT_EQ(answer.times.load(), 0);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  for (size_t i = 0; i < 3; ++i) {  // only one fits at a time: they complete in order
    ASSERT_TRUE(poll_for(answers[i])) << i;
    expect_pinned(answers[i], 20 + 10 * i, 4);
  }
}

TEST_F(PinCacheAsync, ImpossiblePinIsAnErrorWithoutACallback) {
  create_with_budget(4);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 0, 5), GASNET_ERR_RESOURCE);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(ask(answer, 0, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(answer.times.load(), 0);
}

TEST_F(PinCacheAsync, RefusalIsReturnedOrCalledBack) {
  create();
  registrar_.refuse(arena_.addr(0), kPage, RecordingRegistrar::kAnyAccess);
  PinAnswer answer;
  const int status = ask(answer, 0);
  if (status == GASNET_OK) {
    ASSERT_TRUE(poll_for(answer));
    EXPECT_EQ(hydrant_pin_status(answer.pin), HYDRANT_ERR_REFUSED);
  } else {
    EXPECT_EQ(status, HYDRANT_ERR_REFUSED);
    EXPECT_EQ(answer.times.load(), 0);
  }
}

TEST_F(PinCacheAsync, DestroyCompletesWaitingPins) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 20, 2), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  expect_cancelled(answer);
  EXPECT_EQ(answer.pin.region, nullptr);
  EXPECT_EQ(hydrant_release(all), GASNET_ERR_NOT_INIT);
}

// A callback that uses the cache: it releases its pin, requests the next one, and polls.
struct Chain {
  hydrant_domain_t domain;
  const Arena* arena;
  int left;

  static void next(void* context, hydrant_pin_t pin) {
    auto* self = static_cast<Chain*>(context);
    ASSERT_NE(pin.region, nullptr);
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    EXPECT_EQ(hydrant_invalidate(self->domain, self->arena->page(0), kPage), GASNET_OK);
    EXPECT_GE(hydrant_poll(self->domain), 0);
    if (--self->left > 0) {
      EXPECT_EQ(hydrant_pin_async(self->domain, self->arena->page(static_cast<size_t>(self->left)),
                                  kPage, 0, &Chain::next, self),
                GASNET_OK);
    }
  }
};

TEST_F(PinCacheAsync, CallbacksMayUseTheCache) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(100, 4);
  ASSERT_NE(all.region, nullptr);
  Chain chain{domain_, &arena_, 20};
  EXPECT_EQ(hydrant_pin_async(domain_, arena_.page(50), kPage, 0, &Chain::next, &chain), GASNET_OK);
  EXPECT_EQ(chain.left, 20);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  EXPECT_TRUE(wait_until([&] { return hydrant_poll(domain_) >= 0 && chain.left == 0; }));
}

// ---- registrars that complete later ----

TEST_F(PinCacheAsync, RegistrationCompletesFromAnotherThread) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 10, 3), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(answer.times.load(), 0);
  EXPECT_EQ(hydrant_pin_status(try_pin(10)), GASNET_ERR_NOT_READY);
  Threads threads;
  threads.start([&] { EXPECT_TRUE(registrar_.complete_async(GASNET_OK)); });
  ASSERT_TRUE(poll_for(answer));
  expect_pinned(answer, 10, 3);
  threads.join();
  EXPECT_TRUE(is_cached(10, 3));
}

TEST_F(PinCacheAsync, OthersWaitForARegistrationThatCompletesLater) {
  create_deferring();
  PinAnswer first, second;
  EXPECT_EQ(ask(first, 10, 3), GASNET_OK);
  EXPECT_EQ(ask(second, 11, 1), GASNET_OK);
  Threads threads;
  threads.start([&] {
    const hydrant_pin_t held = pin(11);
    EXPECT_EQ(check_hold(registrar_, held, arena_.addr(11), kPage, HYDRANT_LOCAL_WRITE), "");
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
  });
  std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(poll_for(first));
  ASSERT_TRUE(poll_for(second));
  expect_pinned(first, 10, 3);
  expect_pinned(second, 11);
  threads.join();
  EXPECT_EQ(registrar_.pin_calls(), 1u);
}

TEST_F(PinCacheAsync, FailedCompletionIsPassedOn) {
  create_deferring();
  for (const int failure : {HYDRANT_ERR_REFUSED, HYDRANT_ERR_BROKEN}) {
    PinAnswer answer;
    EXPECT_EQ(ask(answer, 10, 3), GASNET_OK);
    EXPECT_TRUE(registrar_.complete_async(failure));
    ASSERT_TRUE(poll_for(answer));
    EXPECT_EQ(hydrant_pin_status(answer.pin), failure);
    EXPECT_EQ(stats_of(domain_).charged_bytes, 0u);
    EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(10), 3 * kPage), GASNET_OK);
  }
}

TEST_F(PinCacheAsync, InvalidatedInFlightIsRegisteredAgain) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 10, 3), GASNET_OK);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(12), 1), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  // The registration is dropped; its repetition completes in the same manner.
  ASSERT_TRUE(complete_for(answer));
  expect_pinned(answer, 10, 3);
  EXPECT_EQ(registrar_.pins(), 2u);
  EXPECT_GE(stats_of(domain_).retries, 1u);
}

TEST_F(PinCacheAsync, DestroyWithARegistrationUnderWayLeavesNothingPinned) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 10, 3), GASNET_OK);
  Threads threads;
  threads.start([&] {
    std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  });
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  threads.join();
  expect_cancelled(answer);
  EXPECT_EQ(registrar_.live(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
