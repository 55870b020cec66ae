// The part of rank 0's environment that other ranks get, and their behaviour if they get none.
#include "am/job/shared_environment.hpp"

#include "tests/support/fake_bootstrap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hydrant {
namespace {

using testing::FakeBootstrap;

// Publishes `value` as rank 0; this rank has "own".
void exchange(FakeBootstrap* store, SharedEnvironment* here, const std::string& value) {
  setenv("TEST_SHARED", value.c_str(), 1);
  SharedEnvironment rank_0;
  ASSERT_EQ(rank_0.publish(*store), Status::kOk);
  setenv("TEST_SHARED", "own", 1);
  here->adopt(*store);
  unsetenv("TEST_SHARED");
}

TEST(SharedEnvironment, LauncherVariablesAreNotShared) {
  const char* const variables[] = {
      "A=1", "HYDRANT_JOB_RANK=0", "PMIX_RANK=0",      "PMI_RANK=0", "OMPI_X=",
      "_=x", "SLURM_PROCID=3",     "HYDRANT_LOG=info", "B=",         nullptr};
  using namespace std::string_literals;
  EXPECT_EQ(SharedEnvironment::shared_part(variables), "A=1\0HYDRANT_LOG=info\0B=\0"s);
  EXPECT_EQ(SharedEnvironment::shared_part(nullptr), "");
}

TEST(SharedEnvironment, OtherRanksGetTheValueOfRank0) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1024}, size_t{5000}, size_t{100000}}) {
    FakeBootstrap store;
    SharedEnvironment here;
    const std::string value(bytes, 'x');
    exchange(&store, &here, value);
    ASSERT_NE(here.find("TEST_SHARED"), nullptr);
    EXPECT_EQ(here.find("TEST_SHARED"), value);
    EXPECT_EQ(here.find("TEST_SHAR"), nullptr);
    EXPECT_EQ(here.find("TEST_SHARED_"), nullptr);
    EXPECT_EQ(here.find(""), nullptr);
  }
}

TEST(SharedEnvironment, EqualEnvironmentNeedsOneQuery) {
  FakeBootstrap store;
  SharedEnvironment here;
  exchange(&store, &here, "own");
  EXPECT_EQ(store.gets, 1u);
  EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
}

TEST(SharedEnvironment, WithoutSharingEachRankUsesItsOwn) {
  {
    FakeBootstrap store;
    SharedEnvironment here;
    exchange(&store, &here, std::string(SharedEnvironment::kMaxBytes, 'x'));
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
    EXPECT_EQ(store.gets, 1u);
  }
  {
    FakeBootstrap store;
    store.refused = "environment.3";
    SharedEnvironment here;
    exchange(&store, &here, std::string(10000, 'x'));
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
    EXPECT_EQ(store.gets, 1u);
  }
  {  // a store without it
    FakeBootstrap store;
    SharedEnvironment here;
    here.adopt(store);
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
  }
}

TEST(SharedEnvironment, IncompleteOrCorruptEnvironmentIsNotUsed) {
  for (const size_t cut : {size_t{1}, size_t{0}}) {
    FakeBootstrap store;
    setenv("TEST_SHARED", std::string(5000, 'x').c_str(), 1);
    SharedEnvironment rank_0;
    ASSERT_EQ(rank_0.publish(store), Status::kOk);
    setenv("TEST_SHARED", "own", 1);
    std::vector<std::byte>& second = store.entries.at({0, "environment.1"});
    if (cut != 0) second.pop_back();
    second[0] ^= std::byte{1};
    SharedEnvironment here;
    here.adopt(store);
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
    unsetenv("TEST_SHARED");
  }
}

}  // namespace
}  // namespace hydrant
