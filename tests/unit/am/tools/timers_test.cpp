#define GASNETT_THREAD_SAFE 1
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <gasnet_tools.h>
#include <thread>
#include <vector>

namespace {

uint64_t clock_now() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

// True if ticks and the system's clock agree on the duration of a sleep. Each clock is read around the
// other, so interruptions cannot shorten the outer interval. One percent covers the clocks' different
// rates.
bool agrees_with_clock() {
  const uint64_t clock_outer = clock_now();
  const auto tick_outer = gasnett_ticks_now();
  const uint64_t clock_inner = clock_now();
  const auto tick_inner = gasnett_ticks_now();
  if (gasnett_nsleep(20'000'000) != 0) return false;
  const uint64_t tick_inner_ns = gasnett_ticks_to_ns(gasnett_ticks_now() - tick_inner);
  const uint64_t clock_inner_ns = clock_now() - clock_inner;
  const uint64_t tick_outer_ns = gasnett_ticks_to_ns(gasnett_ticks_now() - tick_outer);
  const uint64_t clock_outer_ns = clock_now() - clock_outer;
  return tick_inner_ns <= clock_inner_ns + clock_inner_ns / 100 &&
         clock_inner_ns <= tick_outer_ns + tick_outer_ns / 100 && tick_outer_ns >= 19'800'000 &&
         clock_outer_ns >= 20'000'000;
}

// Runs in a new process, because a process selects its counter only once.
[[noreturn]] void check_in_child(const char* rate) {
  setenv("GASNET_TSC_RATE", rate, 1);
  std::exit(agrees_with_clock() ? 0 : 1);
}

class TimersInChild : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST(Timers, AgreeWithTheClock) { EXPECT_TRUE(agrees_with_clock()); }

TEST(Timers, NeverGoBack) {
  auto last = gasnett_ticks_now();
  EXPECT_GT(last, GASNETT_TICK_MIN);
  EXPECT_LT(last, GASNETT_TICK_MAX);
  for (int i = 0; i < 100'000; ++i) {
    const auto now = gasnett_ticks_now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Timers, ConversionsAreLinear) {
  const gasnett_tick_t long_ago = gasnett_ticks_now() / 2;
  for (gasnett_tick_t step = 1; step < UINT64_C(1) << 60; step *= 3) {
    const uint64_t whole = gasnett_ticks_to_ns(long_ago + step);
    const uint64_t parts = gasnett_ticks_to_ns(long_ago) + gasnett_ticks_to_ns(step);
    ASSERT_LE(whole - parts, 1u) << step;
    ASSERT_EQ(gasnett_ticks_to_us(step), gasnett_ticks_to_ns(step) / 1000) << step;
  }
  EXPECT_EQ(gasnett_ticks_to_ns(0), 0u);
}

TEST(Timers, AccuracyIsPositive) {
  EXPECT_GT(gasnett_tick_granularityus(), 0.0);
  EXPECT_GT(gasnett_tick_overheadus(), 0.0);
  EXPECT_EQ(gasnett_tick_overheadus(), gasnett_tick_overheadus()) << "measured once";
}

TEST(Timers, ThreadsMayCalibrateTogether) {
  std::vector<std::thread> threads;
  std::vector<uint64_t> results(4);
  for (auto& result : results) {
    threads.emplace_back([&result] { result = gasnett_ticks_to_ns(UINT64_C(1) << 40); });
  }
  for (auto& thread : threads) thread.join();
  for (const uint64_t result : results) EXPECT_EQ(result, results[0]);
}

TEST(Timers, SleepLastsAtLeastItsTime) {
  EXPECT_EQ(gasnett_nsleep(0), 0);
  const auto before = gasnett_ticks_now();
  EXPECT_EQ(gasnett_nsleep(1'000'000), 0);
  EXPECT_GE(gasnett_ticks_to_us(gasnett_ticks_now() - before), 990u);
  EXPECT_GT(gasnett_gettimeofday_us(), UINT64_C(1'600'000'000'000'000));
}

TEST_F(TimersInChild, SystemClockCanBeSelected) {
  EXPECT_EXIT(
      {
        setenv("GASNET_TSC_RATE", "clock", 1);
        const uint64_t before = clock_now();
        const auto ticks = gasnett_ticks_now();
        const bool is_clock = ticks >= before && ticks <= clock_now();
        std::exit(is_clock && gasnett_ticks_to_ns(12345) == 12345 && agrees_with_clock() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(TimersInChild, MeasuredRateIsAccurate) {
  EXPECT_EXIT(check_in_child("walltime"), ::testing::ExitedWithCode(0), "");
}

TEST_F(TimersInChild, VerbosePrintsTheRate) {
  EXPECT_EXIT(
      {
        setenv("GASNET_TSC_VERBOSE", "1", 1);
        (void)gasnett_ticks_now();
        // Without a steady counter no calibration happens.
        if (!hydrant_tools_ticks_are_tsc) std::fputs("TICKS: none MHz", stderr);
        (void)gasnett_ticks_to_ns(1);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "TICKS: .* MHz");
}

TEST_F(TimersInChild, InvalidRatesAreReported) {
  for (const char* bad : {"fast", "3 GHz", "1000", "2G"}) {
    EXPECT_EXIT(
        {
          setenv("GASNET_TSC_RATE", bad, 1);
          (void)gasnett_ticks_now();
          // Without a steady counter its rate is of no use.
          if (!hydrant_tools_ticks_are_tsc) std::fputs("TSC_RATE=: invalid value", stderr);
          check_in_child(bad);
        },
        ::testing::ExitedWithCode(0), "TSC_RATE=.*: invalid value");
  }
}

TEST_F(TimersInChild, WrongRateIsDetected) {
  EXPECT_EXIT(
      {
        setenv("GASNET_TSC_RATE", "90000000000", 1);
        (void)gasnett_ticks_now();
        if (!hydrant_tools_ticks_are_tsc)
          gasnett_fatalerror_nopos("the relative error: no steady counter");
        (void)gasnett_ticks_to_ns(1);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGABRT), "FATAL ERROR: .*the relative error");
}

TEST_F(TimersInChild, ToleranceOfZeroAcceptsEveryRate) {
  EXPECT_EXIT(
      {
        setenv("GASNET_TSC_RATE", "1000000000", 1);
        setenv("GASNET_TSC_RATE_TOLERANCE", "0", 1);
        setenv("GASNET_TSC_RATE_HARD_TOLERANCE", "0", 1);
        (void)gasnett_ticks_now();
        std::exit(gasnett_ticks_to_ns(1'000'000'000) == 1'000'000'000 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(TimersInChild, InvalidTolerancesAreReported) {
  for (const char* bad : {"2", "much", "-1"}) {
    EXPECT_EXIT(
        {
          setenv("GASNET_TSC_RATE_TOLERANCE", bad, 1);
          (void)gasnett_ticks_now();
          if (!hydrant_tools_ticks_are_tsc) std::fputs("invalid value", stderr);
          (void)gasnett_ticks_to_ns(1);
          std::exit(0);
        },
        ::testing::ExitedWithCode(0), "invalid value");
  }
}

}  // namespace
