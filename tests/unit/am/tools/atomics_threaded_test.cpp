// The atomics in thread-safe mode, in one thread and between threads.
#define GASNETT_THREAD_SAFE 1
#include <gasnet_tools.h>

#define HYDRANT_SUITE AtomicsThreaded
#include "tests/unit/am/tools/atomics_cases.hpp"

#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 4;
constexpr uint32_t kRounds = 5000;

template <typename Body>
void in_threads(Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

TEST(AtomicsThreaded, NoUpdateIsLost) {
  gasnett_atomic_t narrow = gasnett_atomic_init(0);
  gasnett_atomic64_t wide = gasnett_atomic64_init(0);
  in_threads([&](int) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      gasnett_atomic_increment(&narrow, 0);
      gasnett_atomic64_add(&wide, (UINT64_C(1) << 32) + 1, 0);
      for (uint32_t old = gasnett_atomic_read(&narrow, 0);
           !gasnett_atomic_compare_and_swap(&narrow, old, old + 1, 0);
           old = gasnett_atomic_read(&narrow, 0)) {
      }
    }
  });
  EXPECT_EQ(gasnett_atomic_read(&narrow, 0), 2 * kThreads * kRounds);
  EXPECT_EQ(gasnett_atomic64_read(&wide, 0), ((UINT64_C(1) << 32) + 1) * kThreads * kRounds);
}

TEST(AtomicsThreaded, SwapReturnsEveryValueOnce) {
  gasnett_atomic32_t box = gasnett_atomic32_init(0);
  gasnett_atomic64_t sum = gasnett_atomic64_init(0);
  in_threads([&](int id) {
    for (uint32_t i = 1; i <= kRounds; ++i) {
      const uint32_t mine = static_cast<uint32_t>(id) * kRounds + i;
      gasnett_atomic64_add(&sum, gasnett_atomic32_swap(&box, mine, 0), 0);
    }
  });
  const uint64_t n = uint64_t{kThreads} * kRounds;
  EXPECT_EQ(gasnett_atomic64_read(&sum, 0) + gasnett_atomic32_read(&box, 0), n * (n + 1) / 2);
}

TEST(AtomicsThreaded, DecrementAndTestHasOneWinner) {
  gasnett_atomic_t left = gasnett_atomic_init(kThreads * kRounds);
  gasnett_atomic_t winners = gasnett_atomic_init(0);
  in_threads([&](int) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      if (gasnett_atomic_decrement_and_test(&left, 0)) gasnett_atomic_increment(&winners, 0);
    }
  });
  EXPECT_EQ(gasnett_atomic_read(&winners, 0), 1u);
}

// Plain data guarded by a flag. The thread sanitizer reports a race if the flag does not order the
// accesses.
TEST(AtomicsThreaded, ReleaseAndAcquireOrderPlainData) {
  gasnett_atomic_t turn = gasnett_atomic_init(0);
  uint64_t data[2] = {0, 0};
  in_threads([&](int id) {
    for (uint32_t i = 0; i < kRounds / 10; ++i) {
      while (gasnett_atomic_read(&turn, GASNETT_ATOMIC_ACQ) % kThreads !=
             static_cast<uint32_t>(id)) {
        gasnett_sched_yield();
      }
      EXPECT_EQ(data[0], data[1]);
      ++data[0];
      ++data[1];
      gasnett_atomic_increment(&turn, GASNETT_ATOMIC_REL);
    }
  });
  EXPECT_EQ(data[0], uint64_t{kThreads} * (kRounds / 10));
}

TEST(AtomicsThreaded, CompareAndSwapImplementsALock) {
  gasnett_atomic_t lock = gasnett_atomic_init(0);
  uint64_t guarded = 0;
  in_threads([&](int) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      while (!gasnett_atomic_compare_and_swap(&lock, 0, 1, GASNETT_ATOMIC_ACQ_IF_TRUE)) {
        gasnett_spinloop_hint();
        gasnett_sched_yield();
      }
      ++guarded;
      gasnett_atomic_set(&lock, 0, GASNETT_ATOMIC_REL);
    }
  });
  EXPECT_EQ(guarded, uint64_t{kThreads} * kRounds);
}

// Store buffering: two threads each store and then load, with a full fence between. At least one must
// see the other's store.
TEST(AtomicsThreaded, FullFenceOrdersStoreBeforeLoad) {
  for (uint32_t round = 1; round <= 2000; ++round) {
    gasnett_atomic_t flag[2] = {gasnett_atomic_init(0), gasnett_atomic_init(0)};
    gasnett_atomic_t ready = gasnett_atomic_init(0);
    uint32_t seen[2] = {0, 0};
    const auto body = [&](int id) {
      gasnett_atomic_increment(&ready, 0);
      while (gasnett_atomic_read(&ready, 0) != 2) gasnett_sched_yield();
      gasnett_atomic_set(&flag[id], 1, round % 2 ? GASNETT_ATOMIC_MB_POST : 0);
      if (round % 2 == 0) gasnett_local_mb();
      seen[id] = gasnett_atomic_read(&flag[1 - id], 0);
    };
    std::thread other(body, 1);
    body(0);
    other.join();
    ASSERT_GT(seen[0] + seen[1], 0u);
  }
}

}  // namespace
