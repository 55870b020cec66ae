// Fixture of the tests of pins that complete later: requests, their answers, and registrars that take time.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::testing {

// Receives the completion of an asynchronous pin.
struct PinAnswer {
  std::atomic<int> times{0};
  hydrant_pin_t pin{};

  static void store(void* context, hydrant_pin_t pin) {
    auto* self = static_cast<PinAnswer*>(context);
    self->pin = pin;
    ++self->times;
  }
};

class AsyncPinCache : public PinCacheTest {
 protected:
  using PinCacheTest::PinCacheTest;

  // A domain whose registrations end when the test completes them.
  void create_deferring() {
    registrar_.offer_async();
    create();
  }
  int ask(PinAnswer& answer, size_t page, size_t pages = 1, uint32_t access = HYDRANT_LOCAL_WRITE) {
    return hydrant_pin_async(domain_, arena_.page(page), pages * kPage, access, &PinAnswer::store,
                             &answer);
  }
  // Polls until the pin has completed.
  bool poll_for(const PinAnswer& answer) {
    return wait_until([&] { return hydrant_poll(domain_) >= 0 && answer.times != 0; });
  }
  // The same; all registrations that are begun meanwhile succeed.
  bool complete_for(const PinAnswer& answer) {
    return wait_until([&] {
      (void)registrar_.complete_async(GASNET_OK);
      return hydrant_poll(domain_) >= 0 && answer.times != 0;
    });
  }
  // Releases the pin.
  void expect_pinned(const PinAnswer& answer, size_t page, size_t pages = 1,
                     uint32_t access = HYDRANT_LOCAL_WRITE) {
    ASSERT_EQ(answer.times.load(), 1);
    ASSERT_NE(answer.pin.region, nullptr) << hydrant_status_name(hydrant_pin_status(answer.pin));
    EXPECT_EQ(check_hold(registrar_, answer.pin, arena_.addr(page), pages * kPage, access), "");
    EXPECT_EQ(hydrant_release(answer.pin), GASNET_OK);
  }
  // By the end of the domain.
  static void expect_cancelled(const PinAnswer& answer) {
    EXPECT_EQ(answer.times.load(), 1);
    EXPECT_EQ(hydrant_pin_status(answer.pin), GASNET_ERR_NOT_INIT);
  }
};

}  // namespace hydrant::testing
