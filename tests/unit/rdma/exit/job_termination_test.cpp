#include "rdma/exit/job_termination.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

constexpr ExitTimes kTimes{.quit_ns = 100, .kill_ns = 1000};
using Step = JobTermination::Step;

TEST(ExitTimes, GrowWithTheRanksUpToALimit) {
  EXPECT_EQ(exit_times(4).kill_ns, 2'200'000'000U);
  EXPECT_EQ(exit_times(360).kill_ns, 20'000'000'000U);
  EXPECT_EQ(exit_times(1'000'000).kill_ns, 20'000'000'000U);
}

TEST(JobTermination, NothingIsDueBeforeTermination) {
  JobTermination end(kTimes);
  EXPECT_FALSE(end.has_begun());
  EXPECT_EQ(end.step(UINT64_MAX - 1), Step::kNothing);
  EXPECT_EQ(end.next_ns(), UINT64_MAX);
  EXPECT_EQ(end.code(), 0);
}

TEST(JobTermination, FirstExitStartsTerminationAndStepsRunOnce) {
  JobTermination end(kTimes);
  EXPECT_TRUE(end.leave(3, 7, 50));
  EXPECT_FALSE(end.leave(2, 8, 60));
  EXPECT_EQ(end.code(), 7);
  EXPECT_EQ(end.rank(), 3u);
  EXPECT_EQ(end.next_ns(), 150u);
  EXPECT_EQ(end.step(149), Step::kNothing);
  EXPECT_EQ(end.step(150), Step::kQuit);
  EXPECT_EQ(end.step(151), Step::kNothing);
  EXPECT_EQ(end.step(1050), Step::kKill);
  EXPECT_EQ(end.step(5000), Step::kNothing);
}

TEST(JobTermination, ExitWithZeroHalvesTheGracePeriod) {
  JobTermination end(kTimes);
  end.leave(0, 0, 0);
  EXPECT_TRUE(end.is_clean_exit());
  EXPECT_EQ(end.next_ns(), 500u);
}

TEST(JobTermination, FirstNonzeroCodeWins) {
  JobTermination end(kTimes);
  end.leave(0, 0, 0);
  end.leave(1, 5, 1);
  end.die(2, 9, 2);
  EXPECT_EQ(end.code(), 5);
  EXPECT_FALSE(end.is_clean_exit());
}

TEST(JobTermination, DeathBySignalHasTheShellsCode) {
  JobTermination end(kTimes);
  EXPECT_TRUE(end.die(2, 9, 2));
  end.leave(1, 5, 3);
  EXPECT_EQ(end.code(), 137);
  EXPECT_EQ(end.signal(), 9);
}

TEST(JobTermination, OnlyTheLowEightBitsOfACodeCount) {
  JobTermination end(kTimes);
  end.leave(0, 256, 0);
  EXPECT_EQ(end.code(), 0);
  end.leave(0, -1, 0);
  EXPECT_EQ(end.code(), 255);
}

TEST(JobTermination, RequestSendsNoQuitAndSetsTheCodeOnlyByAKill) {
  JobTermination end(kTimes);
  EXPECT_TRUE(end.ask(15, 0));
  EXPECT_EQ(end.next_ns(), 1000u);
  EXPECT_EQ(end.code(), 0);
  end.kill_now(10);
  EXPECT_EQ(end.step(10), Step::kKill);
  EXPECT_EQ(end.code(), 143);
}

TEST(JobTermination, TimeoutHasACodeOfItsOwn) {
  JobTermination end(kTimes);
  EXPECT_TRUE(end.time_out(0));
  EXPECT_EQ(end.code(), 124);
}

}  // namespace
}  // namespace hydrant
