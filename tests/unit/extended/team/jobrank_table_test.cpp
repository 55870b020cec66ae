// The translation from ranks of the job to ranks of a team.
#include "am/job/resolve.hpp"
#include "extended/team/team.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
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

// Teams whose ranks have one distance, also a negative one, and those that look so at first.
TEST(TeamsTranslateRanks, BothWays) {
  for (const int step : {1, -1, 3, -7, 0}) {
    for (const Rank size : {1u, 2u, 3u, 17u}) {
      const Rank base = 500;
      std::vector<Rank> members;
      for (Rank i = 0; i < size; ++i)
        members.push_back(static_cast<Rank>(static_cast<int>(base) + static_cast<int>(i) * step));
      // No distance: rank 500, 501, 502, ..., and another one at the end.
      if (step == 0) {
        std::iota(members.begin(), members.end(), base);
        members.back() = 3;
      }
      std::unique_ptr<Rank[]> jobranks(new Rank[size]);
      std::copy(members.begin(), members.end(), jobranks.get());
      const std::unique_ptr<Team> team = Team::make(1, nullptr, 0, std::move(jobranks), size);
      ASSERT_NE(team, nullptr);
      EXPECT_EQ(team->jobranks != nullptr, step == 0 && size > 2) << "memory per member";
      for (Rank i = 0; i < size; ++i) {
        EXPECT_EQ(jobrank_of(*team, i), members[i]);
        EXPECT_EQ(team->members().jobrank(i), members[i]);
      }
      for (Rank jobrank = 0; jobrank < 1000; ++jobrank) {
        const auto found = std::find(members.begin(), members.end(), jobrank);
        EXPECT_EQ(team->find(jobrank), found != members.end()
                                           ? static_cast<Rank>(found - members.begin())
                                           : GEX_RANK_INVALID);
      }
      for (const Rank none : {GEX_RANK_INVALID, GEX_RANK_INVALID / 2, GEX_RANK_INVALID / 2 + 1})
        EXPECT_EQ(team->find(none), GEX_RANK_INVALID);
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
