// Many threads on one cache: registrations under way, holds that cross threads and outlive them, waiting for
// budget. pin_cache_stress_test.cpp has the races of the hit path.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

using namespace std::chrono_literals;

class PinCacheThreads : public PinCacheTest {
 protected:
  std::string check(hydrant_pin_t held, size_t page, size_t pages = 1) const {
    return check_hold(registrar_, held, arena_.addr(page), pages * kPage, HYDRANT_LOCAL_WRITE);
  }
  // Repeats the call while it returns "not now".
  hydrant_pin_t pin_patiently(size_t page, size_t pages = 1) {
    hydrant_pin_t held{};
    wait_until([&] {
      held = pin(page, pages);
      return hydrant_pin_status(held) != GASNET_ERR_NOT_READY;
    });
    return held;
  }
};

// ---- registrations under way ----

TEST_F(PinCacheThreads, SlowRegistrationBlocksNoOtherRange) {
  create();
  const hydrant_pin_t warm = pin(0);
  ASSERT_NE(warm.region, nullptr);
  registrar_.stop_pins();
  Threads threads;
  std::atomic<int> got{0};
  for (int i = 0; i < 3; ++i) {
    threads.start([&] {
      const hydrant_pin_t held = pin(10, 4);
      EXPECT_EQ(check(held, 10, 4), "");
      ++got;
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
  }
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  wait_until([&] { return stats_of(domain_).waits >= 2; }, 1s);
  for (int i = 0; i < 1000; ++i) {
    const hydrant_pin_t hit = pin(0);
    ASSERT_NE(hit.region, nullptr) << "a hit waited or failed beside a registration";
    EXPECT_EQ(hydrant_release(hit), GASNET_OK);
  }
  EXPECT_EQ(hydrant_pin_status(try_pin(10)), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_pin_status(hydrant_partial_pin(domain_, arena_.page(10), kPage, 0)),
            GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(200), kPage), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(got.load(), 0);
  registrar_.resume_pins();
  threads.join();
  EXPECT_EQ(got.load(), 3);
  EXPECT_EQ(registrar_.pin_calls(), 2u) << "callers of the same range register it once";
  EXPECT_EQ(hydrant_release(warm), GASNET_OK);
}

TEST_F(PinCacheThreads, DifferentRangesRegisterAtTheSameTime) {
  create();
  registrar_.stop_pins();
  Threads threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.start([&, i] {
      const hydrant_pin_t held = pin(i * 100, 2);
      EXPECT_EQ(check(held, i * 100, 2), "");
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
  }
  EXPECT_TRUE(registrar_.wait_for_stopped(3)) << "one registration waits for another";
  registrar_.resume_pins();
  threads.join();
}

TEST_F(PinCacheThreads, InvalidatedRegistrationIsDroppedAndDoneAgain) {
  create();
  registrar_.stop_pins();
  uint64_t fresh = 0;
  Threads threads;
  for (int i = 0; i < 2; ++i) {  // one registers, one waits: neither may get the old registration
    threads.start([&] {
      const hydrant_pin_t held = pin(10, 4);
      std::vector<uint64_t> oldest(arena_.pages());
      oldest[11] = fresh;
      EXPECT_EQ(check_hold(registrar_, held, arena_.addr(10), 4 * kPage, HYDRANT_LOCAL_WRITE,
                           oldest.data()),
                "");
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
  }
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  fresh = registrar_.next_serial();
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(11), 1), GASNET_OK) << "does not wait";
  registrar_.resume_pins();
  threads.join();
  EXPECT_GE(stats_of(domain_).retries, 1u);
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(registrar_.unpins(), 1u);
}

TEST_F(PinCacheThreads, FailedRegistrationFailsOnlyItsRequest) {
  create();
  registrar_.stop_pins();
  registrar_.fail_pin(1, HYDRANT_ERR_BROKEN);
  std::atomic<int> broken{0}, fine{0};
  Threads threads;
  for (int i = 0; i < 3; ++i) {
    threads.start([&] {
      const hydrant_pin_t held = pin(10, 4);
      if (held.region == nullptr) {
        EXPECT_EQ(hydrant_pin_status(held), HYDRANT_ERR_BROKEN);
        EXPECT_TRUE(has_text());
        ++broken;
        return;
      }
      ++fine;
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
  }
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  registrar_.resume_pins();
  threads.join();
  EXPECT_EQ(broken.load(), 1);
  EXPECT_EQ(fine.load(), 2);
}

// ---- holds and threads ----

TEST_F(PinCacheThreads, HoldOutlivesItsThread) {
  create();
  hydrant_pin_t held{};
  std::thread([&] { held = pin(3, 2); }).join();
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(check(held, 3, 2), "") << "flushed although an exited thread's hold remains";
  std::thread([&] { EXPECT_EQ(hydrant_release(held), GASNET_OK); }).join();
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheThreads, InvalidatedHoldOfADeadThreadIsUnpinnedAfterItsRelease) {
  create();
  hydrant_pin_t held{};
  std::thread([&] { held = pin(3, 2); }).join();
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(3), kPage), GASNET_OK);
  EXPECT_EQ(check(held, 3, 2), "");
  EXPECT_EQ(stats_of(domain_).dead_regions, 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(stats_of(domain_).dead_regions, 0u);
}

TEST_F(PinCacheThreads, TakersAndReleasersAreDifferentThreads) {
  create_with_budget(8);
  std::mutex mutex;
  std::vector<hydrant_pin_t> queue;
  std::atomic<bool> taken_all{false};
  Threads threads;
  threads.start([&] {
    for (size_t i = 0; i < 5000; ++i) {
      const hydrant_pin_t held = pin_patiently(i % 12);
      ASSERT_NE(held.region, nullptr) << hydrant_error_text();
      const std::lock_guard guard(mutex);
      queue.push_back(held);
    }
    taken_all = true;
  });
  threads.start([&] {
    for (;;) {
      const bool last = taken_all;
      std::vector<hydrant_pin_t> batch;
      {
        const std::lock_guard guard(mutex);
        std::swap(batch, queue);
      }
      for (const hydrant_pin_t& held : batch) {
        EXPECT_TRUE(registrar_.is_live(serial(held), held.region->addr, held.region->len, 0));
      }
      EXPECT_EQ(hydrant_release_many(batch.data(), batch.size()), GASNET_OK);
      if (last && batch.empty()) return;
    }
  });
  threads.join();
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
}

TEST_F(PinCacheThreads, ExitedThreadsLeaveNothingBehind) {
  create();
  const auto generation = [&] {
    Threads threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.start([&, t] {
        for (size_t i = 0; i < 20; ++i) {
          const hydrant_pin_t held = pin(t * 20 + i);
          EXPECT_EQ(check(held, t * 20 + i), "");
          EXPECT_EQ(hydrant_release(held), GASNET_OK);
        }
      });
    }
  };
  for (int i = 0; i < 5; ++i) generation();
  const hydrant_stats_t early = stats_of(domain_);
  for (int i = 0; i < 60; ++i) generation();
  const hydrant_stats_t late = stats_of(domain_);
  // At most eight live at once; a generation may overlap less or more than the early ones did.
  EXPECT_LE(late.thread_table_bytes, 2 * early.thread_table_bytes + 8 * kPage);
  EXPECT_LE(late.threads, 9u);
  EXPECT_EQ(late.hits + late.refills + late.misses, 65u * 8u * 20u)
      << "dead threads' counts are lost";
}

TEST_F(PinCacheThreads, ThreadOutlivesTheDomain) {
  create();
  std::atomic<int> phase{0};
  Threads threads;
  threads.start([&] {
    EXPECT_EQ(hydrant_release(pin(0)), GASNET_OK);
    phase = 1;
    ASSERT_TRUE(wait_until([&] { return phase == 2; }));
    EXPECT_EQ(check(pin(0), 0), "");
  });
  ASSERT_TRUE(wait_until([&] { return phase == 1; }));
  destroy();
  create();
  phase = 2;
  threads.join();
  EXPECT_EQ(stats_of(domain_).live_holds, 1u);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
}

// ---- pins in the last moments of a thread ----

// POSIX promises four rounds. The thread sanitizer gives its own state up in the fourth and cannot run
// instrumented code after that.
#if defined(__SANITIZE_THREAD__)
constexpr int kExitRounds = 3;
#else
constexpr int kExitRounds = 4;
#endif

struct LastMoments {
  hydrant_domain_t domain;
  const Arena* arena;
  const RecordingRegistrar* registrar;
  pthread_key_t key;
  int round = 0;
  hydrant_pin_t held{};
};

// Runs several times at a thread's end; the later rounds run after the library's own destructors.
void late_destructor(void* value) {
  auto* moments = static_cast<LastMoments*>(value);
  if (moments->held.region != nullptr) {
    EXPECT_EQ(hydrant_release(moments->held), GASNET_OK);
  }
  const size_t page = static_cast<size_t>(moments->round) % 2;
  moments->held =
      hydrant_pin(moments->domain, moments->arena->page(page), kPage, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(check_hold(*moments->registrar, moments->held, moments->arena->addr(page), kPage,
                       HYDRANT_LOCAL_WRITE),
            "");
  if (++moments->round < kExitRounds) pthread_setspecific(moments->key, value);
}

TEST_F(PinCacheThreads, LatePinsAndReleasesInAThreadsDestructor) {
  create();
  std::array<LastMoments, 8> moments;
  pthread_key_t key{};
  ASSERT_EQ(pthread_key_create(&key, late_destructor), 0);
  Threads threads;
  for (size_t i = 0; i < moments.size(); ++i) {
    threads.start([&, i] {
      moments[i] = {domain_, &arena_, &registrar_, key};
      // Some have used the cache before, some see it first in their destructor.
      if (i % 2 == 0) moments[i].held = pin(i + 10);
      pthread_setspecific(key, &moments[i]);
    });
  }
  threads.join();
  EXPECT_EQ(pthread_key_delete(key), 0);
  EXPECT_EQ(stats_of(domain_).live_holds, moments.size());
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  for (LastMoments& m : moments) {
    ASSERT_GT(m.round, 1);
    const size_t page = static_cast<size_t>(m.round - 1) % 2;
    EXPECT_EQ(check(m.held, page), "") << "a late hold was overlooked by flush";
    EXPECT_EQ(hydrant_release(m.held), GASNET_OK);
  }
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

// ---- several at once ----

TEST_F(PinCacheThreads, PinManyInOppositeOrdersNeitherDeadlocksNorStarves) {
  create_with_budget(24);
  registrar_.sleep_in_pins(20us);
  Threads threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.start([&, t] {
      for (size_t i = 0; i < 60; ++i) {
        hydrant_range_t ranges[3];
        for (size_t k = 0; k < 3; ++k) {
          const size_t place = t % 2 == 0 ? k : 2 - k;
          ranges[k] = {arena_.addr(place * 10 + i % 3), 3 * kPage};
        }
        hydrant_pin_t pins[3] = {};
        int status = GASNET_ERR_NOT_READY;
        EXPECT_TRUE(wait_until([&] {
          status = hydrant_pin_many(domain_, ranges, 3, HYDRANT_LOCAL_WRITE, pins);
          return status != GASNET_ERR_NOT_READY;
        })) << hydrant_error_text();
        ASSERT_EQ(status, GASNET_OK) << hydrant_error_text();
        for (size_t k = 0; k < 3; ++k) {
          EXPECT_EQ(check(pins[k], arena_.index(ranges[k].addr), 3), "");
        }
        EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_OK);
        if (i % 5 == 0) {
          EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(i % 30), kPage), GASNET_OK);
        }
      }
    });
  }
  threads.join();
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
}

// ---- waiting for budget ----

TEST_F(PinCacheThreads, PinWaitIsServedByARelease) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  std::atomic<bool> asked{false};
  Threads threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.start([&, i] {
      asked = true;
      const hydrant_pin_t held = hydrant_pin_wait(domain_, arena_.page(50 + 10 * i), 2 * kPage,
                                                  HYDRANT_LOCAL_WRITE, patient_ns(30'000'000'000));
      EXPECT_EQ(check(held, 50 + 10 * i, 2), "") << hydrant_error_text();
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    });
  }
  ASSERT_TRUE(wait_until([&] { return asked.load(); }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
  threads.join();
}

TEST_F(PinCacheThreads, PinWaitTimeoutReportsHeldAndRequestedBytes) {
  create_with_budget(4);
  const hydrant_pin_t all = pin(0, 4);
  ASSERT_NE(all.region, nullptr);
  const hydrant_pin_t late =
      hydrant_pin_wait(domain_, arena_.page(50), 2 * kPage, HYDRANT_LOCAL_WRITE, 3'000'000);
  EXPECT_EQ(hydrant_pin_status(late), GASNET_ERR_NOT_READY);
  const std::string text = hydrant_error_text();
  EXPECT_NE(text.find_first_of("0123456789"), std::string::npos) << text;
  EXPECT_EQ(hydrant_pin_status(hydrant_pin_wait(domain_, arena_.page(50), kPage, 0, 0)),
            GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_release(all), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
