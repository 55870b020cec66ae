// The translation from ranks of the job to ranks of a team.
#include "extended/team/team.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace hydrant::testing {
namespace {

TEST(JobrankTables, FindAllMembersAndNoOthers) {
  std::mt19937 random(1);
  for (const Rank size : {1u, 2u, 3u, 10u, 64u, 1000u}) {
    std::vector<Rank> jobranks(size * 3 + 5);
    std::iota(jobranks.begin(), jobranks.end(), 0);
    std::shuffle(jobranks.begin(), jobranks.end(), random);
    JobrankTable table;
    ASSERT_TRUE(table.make(jobranks.data(), size));
    for (Rank i = 0; i < jobranks.size(); ++i)
      EXPECT_EQ(table.find(jobranks[i]), i < size ? i : GEX_RANK_INVALID);
    EXPECT_EQ(table.find(GEX_RANK_INVALID - 1), GEX_RANK_INVALID);
  }
}

TEST(JobrankTables, StridesOfPowersOfTwoAreFoundToo) {
  std::vector<Rank> jobranks(4096);
  for (Rank i = 0; i < jobranks.size(); ++i) jobranks[i] = i << 16;
  JobrankTable table;
  ASSERT_TRUE(table.make(jobranks.data(), 4096));
  for (Rank i = 0; i < jobranks.size(); ++i) EXPECT_EQ(table.find(jobranks[i]), i);
}

}  // namespace
}  // namespace hydrant::testing
