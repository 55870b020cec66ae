// The part of rank 0's environment that other ranks get, and their behaviour if they get none.
#include "am/job/shared_environment.hpp"

#include "firehose/base/status.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace hydrant {
namespace {

// The store of a job, with room for `room` cards.
class StoreBootstrap final : public Bootstrap {
 public:
  JobPlace place_;
  std::map<std::string, std::vector<std::byte>, std::less<>> cards_;
  size_t room_ = 1000;
  int gets_ = 0;

  const char* name() const noexcept override { return "fake"; }
  const JobPlace& place() const noexcept override { return place_; }
  Status put(std::string_view key, std::span<const std::byte> card) noexcept override {
    if (card.size() > kMaxCardBytes) return fail(Status::kBadArg, "%zu bytes", card.size());
    if (cards_.size() == room_ && key != "environment") return fail(Status::kResource, "full");
    cards_[std::string(key)].assign(card.begin(), card.end());
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank rank, std::string_view key, std::span<std::byte> card, size_t* bytes,
             uint64_t) noexcept override {
    ++gets_;
    const auto found = cards_.find(key);
    if (rank != 0 || found == cards_.end()) return fail(Status::kNotReady, "no such card");
    *bytes = std::min(card.size(), found->second.size());
    std::copy_n(found->second.begin(), *bytes, card.begin());
    return Status::kOk;
  }
  void leave(int, Leaving, uint64_t) noexcept override {}
};

// Publishes `value` as rank 0; this rank has "own".
void exchange(StoreBootstrap* store, SharedEnvironment* here, const std::string& value) {
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
    StoreBootstrap store;
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
  StoreBootstrap store;
  SharedEnvironment here;
  exchange(&store, &here, "own");
  EXPECT_EQ(store.gets_, 1);
  EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
}

TEST(SharedEnvironment, WithoutSharingEachRankUsesItsOwn) {
  {
    StoreBootstrap store;
    SharedEnvironment here;
    exchange(&store, &here, std::string(SharedEnvironment::kMostBytes, 'x'));
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
    EXPECT_EQ(store.gets_, 1);
  }
  {
    StoreBootstrap store;
    store.room_ = 3;
    SharedEnvironment here;
    exchange(&store, &here, std::string(10000, 'x'));
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
    EXPECT_EQ(store.gets_, 1);
  }
  {  // a store without it
    StoreBootstrap store;
    SharedEnvironment here;
    here.adopt(store);
    EXPECT_EQ(here.find("TEST_SHARED"), nullptr);
  }
}

TEST(SharedEnvironment, IncompleteOrCorruptEnvironmentIsNotUsed) {
  for (const size_t cut : {size_t{1}, size_t{0}}) {
    StoreBootstrap store;
    setenv("TEST_SHARED", std::string(5000, 'x').c_str(), 1);
    SharedEnvironment rank_0;
    ASSERT_EQ(rank_0.publish(store), Status::kOk);
    setenv("TEST_SHARED", "own", 1);
    std::vector<std::byte>& second = store.cards_.at("environment.1");
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
