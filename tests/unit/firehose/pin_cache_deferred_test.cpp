// Deferred pins over registrars that complete at once, later, with a failure, or while another call registers
// the same memory: each pin has one outcome, and a failed one leaves neither a hold nor a charge.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/async_pin_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace hydrant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PinCacheDeferred : public AsyncPinCache {
 protected:
  using AsyncPinCache::AsyncPinCache;

  // pin_async() ends before it returns, as pin() does.
  void complete_at_once() {
    pin_ = registrar_.table.pin;
    registrar_.table.user = this;
    registrar_.table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
      auto* self = static_cast<PinCacheDeferred*>(user);
      return self->pin_(&self->registrar_, addr, len, access, key);
    };
    registrar_.table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
      auto* self = static_cast<PinCacheDeferred*>(user);
      return self->unpin_(&self->registrar_, addr, len, key);
    };
    registrar_.table.pin_async = [](void* user, uintptr_t addr, size_t len, uint32_t access,
                                    void* key, hydrant_pin_done_fn, void*) {
      auto* self = static_cast<PinCacheDeferred*>(user);
      const int status = self->pin_(&self->registrar_, addr, len, access, key);
      ++self->at_once_;
      if (const auto inside = std::exchange(self->inside_, nullptr)) inside();
      return status;
    };
    registrar_.table.pending_charge = nullptr;
    registrar_.table.forget_in_child = nullptr;
    registrar_.table.destroy = nullptr;
  }
  void expect_nothing_left() {
    const hydrant_stats_t stats = stats_of(domain_);
    EXPECT_EQ(stats.live_holds, 0u);
    EXPECT_EQ(stats.regions + stats.dead_regions, 0u);
    EXPECT_EQ(stats.charged_bytes, 0u);
    EXPECT_EQ(registrar_.live(), 0u);
  }

  int (*pin_)(void*, uintptr_t, size_t, uint32_t, void*) = nullptr;
  int (*unpin_)(void*, uintptr_t, size_t, const void*) = registrar_.table.unpin;
  std::function<void()> inside_;  // runs once, after the registration
  uint64_t at_once_ = 0;
};

// ---- registrars that complete at once ----

TEST_F(PinCacheDeferred, RegistrationAtOnceIsAnsweredInsideTheCall) {
  complete_at_once();
  create();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  expect_pinned(answer, 4, 3);
  EXPECT_EQ(at_once_, 1u);
  EXPECT_EQ(hydrant_poll(domain_), 0) << "answered twice";
  EXPECT_TRUE(is_cached(4, 3));
}

TEST_F(PinCacheDeferred, FailureAtOnceIsReturnedAndCostsNothing) {
  complete_at_once();
  create();
  for (const int failure : {HYDRANT_ERR_REFUSED, GASNET_ERR_RESOURCE, HYDRANT_ERR_BROKEN}) {
    SCOPED_TRACE(hydrant_status_name(failure));
    PinAnswer answer;
    registrar_.fail_pin(1, failure);
    EXPECT_EQ(ask(answer, 4, 3), failure);
    EXPECT_TRUE(has_text());
    EXPECT_EQ(hydrant_poll(domain_), 0);
    EXPECT_EQ(answer.times.load(), 0) << "both returned and called back";
    expect_nothing_left();
    EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(4), 3 * kPage), GASNET_OK);
  }
  EXPECT_EQ(stats_of(domain_).pin_failures, 3u);
}

TEST_F(PinCacheDeferred, RegistrationAtOnceThatIsInvalidatedIsMadeAgain) {
  complete_at_once();
  create();
  inside_ = [this] { EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(5), 1), GASNET_OK); };
  const uint64_t first = registrar_.next_serial();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  ASSERT_EQ(answer.times.load(), 1);
  EXPECT_NE(serial(answer.pin), first) << "the invalidated registration is used";
  expect_pinned(answer, 4, 3);
  EXPECT_EQ(registrar_.live(), 1u) << "the invalidated registration is left";
  EXPECT_EQ(stats_of(domain_).retries, 1u);
}

// ---- less than the plan ----

enum class When : uint8_t { kAtOnce, kLater };

class PinCacheDeferredLess : public PinCacheDeferred, public ::testing::WithParamInterface<When> {
 protected:
  void offer() { GetParam() == When::kAtOnce ? complete_at_once() : registrar_.offer_async(); }
  void complete(const PinAnswer& answer) {
    if (GetParam() == When::kAtOnce) return;
    EXPECT_EQ(answer.times.load(), 0);
    EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
    // The next attempt is a registration of its own, which completes later, too.
    ASSERT_TRUE(complete_for(answer));
  }
};

TEST_P(PinCacheDeferredLess, RefusedNeighbourDoesNotRefuseTheRequest) {
  offer();
  create();
  EXPECT_EQ(hydrant_release(pin(2, 2)), GASNET_OK);
  registrar_.refuse(arena_.addr(2), 2 * kPage, RecordingRegistrar::kAnyAccess);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 2), GASNET_OK) << hydrant_error_text();
  complete(answer);
  expect_pinned(answer, 4, 2);
  EXPECT_TRUE(is_cached(2, 2)) << "the neighbour is registered as before";
  EXPECT_FALSE(is_cached(2, 4));
  EXPECT_GE(stats_of(domain_).pin_failures, 1u) << "the two are tried together first";
}

TEST_P(PinCacheDeferredLess, RefusedEagerRightsDoNotRefuseTheRequest) {
  offer();
  hydrant_domain_options_t options = options_for(registrar_);
  options.eager_access = HYDRANT_REMOTE_WRITE;
  create(options);
  registrar_.refuse(arena_.addr(4), kPage, HYDRANT_REMOTE_WRITE);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4), GASNET_OK) << hydrant_error_text();
  complete(answer);
  expect_pinned(answer, 4);
  EXPECT_EQ(hydrant_pin_status(pin(4, 1, HYDRANT_REMOTE_WRITE)), HYDRANT_ERR_REFUSED);
  EXPECT_EQ(hydrant_release(pin(8)), GASNET_OK);
}

INSTANTIATE_TEST_SUITE_P(Completion, PinCacheDeferredLess,
                         ::testing::Values(When::kAtOnce, When::kLater), [](const auto& when) {
                           return when.param == When::kAtOnce ? "AtOnce" : "Later";
                         });

// ---- registrars that complete later ----

TEST_F(PinCacheDeferred, RememberedRefusalIsReturnedWithoutTheRegistrar) {
  create_deferring();
  registrar_.refuse(arena_.addr(4), kPage, RecordingRegistrar::kAnyAccess);
  EXPECT_EQ(hydrant_pin_status(pin(4)), HYDRANT_ERR_REFUSED);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4), HYDRANT_ERR_REFUSED);
  EXPECT_THAT(hydrant_error_text(), HasSubstr("was refused for access local_write a moment ago"));
  EXPECT_FALSE(registrar_.complete_async(GASNET_OK)) << "the registrar was called";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(answer.times.load(), 0);
  expect_nothing_left();
}

TEST_F(PinCacheDeferred, LateFailureNamesTheRegistrarAndTheRange) {
  create_deferring();
  struct Seen {
    int status = GASNET_OK;
    std::string text;
  } seen;
  const auto done = [](void* context, hydrant_pin_t pin) {
    *static_cast<Seen*>(context) = {hydrant_pin_status(pin), hydrant_error_text()};
  };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(4), kPage, 0, done, &seen), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_ERR_RESOURCE));
  EXPECT_EQ(hydrant_poll(domain_), 1);
  EXPECT_EQ(seen.status, GASNET_ERR_RESOURCE);
  EXPECT_THAT(seen.text, AllOf(HasSubstr("domain test: registrar test completed the pin"),
                               HasSubstr("GASNET_ERR_RESOURCE")));
  expect_nothing_left();
}

// The registrar answers "not now": the pin is tried again when the client polls, and then evicts.
TEST_F(PinCacheDeferred, LateLackOfRoomLeadsToAnEviction) {
  registrar_.offer_async();
  hydrant_domain_options_t options = options_for(registrar_);
  options.merge_bytes = 1;
  create(options);
  EXPECT_EQ(hydrant_release(pin(20, 4)), GASNET_OK);
  registrar_.allow_bytes(4 * kPage);
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 4), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(complete_for(answer));
  expect_pinned(answer, 4, 4);
  EXPECT_EQ(stats_of(domain_).evictions, 1u);
  EXPECT_FALSE(is_cached(20, 4));
}

TEST_F(PinCacheDeferred, CompletionThatNoPollHasSeenIsUndoneByDestroy) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(answer.times.load(), 0);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  expect_cancelled(answer);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheDeferred, CancelledPinWhoseRegistrationFailsIsAnsweredOnce) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  Threads threads;
  threads.start([&] {
    EXPECT_TRUE(wait_until([&] { return answer.times != 0; }));
    EXPECT_TRUE(registrar_.complete_async(HYDRANT_ERR_BROKEN));
  });
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  threads.join();
  expect_cancelled(answer);
  EXPECT_EQ(registrar_.pins(), 0u);
}

// ---- other calls ----

// The cache queries the charge between its two searches: another thread registers the memory then.
TEST_F(PinCacheDeferred, RegistrationOfAnotherCallServesThePinAtOnce) {
  static std::function<void()> between;
  registrar_.offer_async();
  registrar_.table.charge = [](void*, uintptr_t, size_t len) {
    if (const auto once = std::exchange(between, nullptr)) once();
    return uint64_t{len};
  };
  create();
  between = [this] {
    Threads threads;
    threads.start([this] { EXPECT_EQ(hydrant_release(pin(4, 3)), GASNET_OK); });
  };
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  expect_pinned(answer, 4, 3);
  EXPECT_FALSE(registrar_.complete_async(GASNET_OK)) << "registered twice";
  EXPECT_EQ(registrar_.pins(), 1u);
}

// hydrant_pin_wait() polls while it waits, but starts no registration of another call's pin.
TEST_F(PinCacheDeferred, WaitingPinStartsNoRegistrationOfADeferredOne) {
  registrar_.offer_async();
  create_with_budget(4);
  const hydrant_pin_t all = pin(20, 4);
  ASSERT_NE(all.region, nullptr) << hydrant_error_text();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4), GASNET_OK);
  constexpr uint64_t kTenMs = 10'000'000;
  const hydrant_pin_t other = hydrant_pin_wait(domain_, arena_.page(40), kPage, 0, kTenMs);
  EXPECT_EQ(hydrant_pin_status(other), GASNET_ERR_NOT_READY);
  EXPECT_EQ(answer.times.load(), 0);
  EXPECT_EQ(registrar_.pin_calls(), 1u);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0) << "started now";
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(poll_for(answer));
  expect_pinned(answer, 4);
}

class PinCacheDeferredKeyless : public PinCacheDeferred {
 protected:
  PinCacheDeferredKeyless() : PinCacheDeferred(0) {}
};

TEST_F(PinCacheDeferredKeyless, LateCompletionNeedsNoKey) {
  create_deferring();
  PinAnswer answer;
  EXPECT_EQ(ask(answer, 4, 3), GASNET_OK);
  EXPECT_TRUE(registrar_.complete_async(GASNET_OK));
  ASSERT_TRUE(poll_for(answer));
  expect_pinned(answer, 4, 3);
  EXPECT_TRUE(is_cached(4, 3));
  EXPECT_EQ(registrar_.live_bytes(), 3 * kPage);
}

}  // namespace
}  // namespace hydrant::testing
