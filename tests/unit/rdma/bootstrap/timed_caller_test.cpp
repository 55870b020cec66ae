#include "rdma/bootstrap/timed_caller.hpp"

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hydrant {
namespace {

uint64_t in_ms(uint64_t ms) { return now_ns() + testing::patient_ns(ms * 1'000'000); }

TEST(TimedCaller, RunsCallsInOrder) {
  TimedCaller caller;
  ASSERT_TRUE(caller.start("test"));
  int value = 0;
  EXPECT_TRUE(caller.call([&] { value = 1; }, in_ms(20'000)));
  EXPECT_TRUE(caller.call([&] { value *= 5; }, in_ms(20'000)));
  EXPECT_EQ(value, 5);
}

TEST(TimedCaller, CallerPollsWhileTheWorkRuns) {
  static std::atomic<int> polls;
  polls = 0;
  TimedCaller caller;
  ASSERT_TRUE(caller.start("test"));
  EXPECT_TRUE(caller.call(
      [] {
        while (polls < 3) std::this_thread::yield();
      },
      in_ms(20'000), []() noexcept { ++polls; }));
  EXPECT_GE(polls, 3);
}

TEST(TimedCaller, CallBeyondItsDeadlineIsAbandoned) {
  auto release = std::make_shared<std::atomic<bool>>(false);
  TimedCaller caller;
  ASSERT_TRUE(caller.start("test"));
  EXPECT_FALSE(caller.call(
      [release] {
        while (!release->load()) std::this_thread::yield();
      },
      in_ms(5)));
  EXPECT_FALSE(caller.call([] {}, in_ms(20'000)));
  release->store(true);
}

TEST(TimedCaller, AbandonedThreadServesAgainWhenItsCallHasEnded) {
  auto release = std::make_shared<std::atomic<bool>>(false);
  TimedCaller caller;
  ASSERT_TRUE(caller.start("test"));
  ASSERT_FALSE(caller.call(
      [release] {
        while (!release->load()) std::this_thread::yield();
      },
      in_ms(5)));
  release->store(true);
  const uint64_t deadline = in_ms(20'000);
  bool served = false;
  while (!served && now_ns() < deadline) served = caller.call([] {}, deadline);
  EXPECT_TRUE(served);
}

TEST(TimedCaller, CallsOfSeveralThreadsTakeTurns) {
  TimedCaller caller;
  ASSERT_TRUE(caller.start("test"));
  int sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) EXPECT_TRUE(caller.call([&] { ++sum; }, in_ms(60'000)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 400);
}

TEST(TimedCaller, WithoutAThreadEveryCallFails) {
  TimedCaller caller;
  EXPECT_FALSE(caller.call([] {}, in_ms(1)));
}

}  // namespace
}  // namespace hydrant
