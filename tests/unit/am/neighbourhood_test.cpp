// Division of a host into neighbourhoods.
#include "am/segment/neighbourhood.hpp"

#include "am/job/job.hpp"
#include "firehose/base/status.hpp"
#include "tests/support/fake_bootstrap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hydrant {
namespace {

// A rank on a node of several ranks; keeps the endpoint address that was published last.
class NodeBootstrap final : public Bootstrap {
 public:
  JobTopology place_;
  std::vector<std::byte> entry_;

  const char* name() const noexcept override { return "fake"; }
  const JobTopology& topology() const noexcept override { return place_; }
  Status put(std::string_view, std::span<const std::byte> entry) noexcept override {
    entry_.assign(entry.begin(), entry.end());
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank, std::string_view, std::span<std::byte>, size_t*, uint64_t) noexcept override {
    return Status::kNotReady;
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}
};

std::vector<Rank> ranks_of(const std::vector<hydrant_rank_info>& infos) {
  std::vector<Rank> ranks;
  for (const hydrant_rank_info& info : infos) ranks.push_back(info.gex_jobrank);
  return ranks;
}

// Node 1 of 2; its ranks are the odd ones.
const Neighbourhood& cut(uint32_t ranks_here, uint32_t node_rank, uint32_t most) {
  NodeBootstrap bootstrap;
  bootstrap.place_.node = 1;
  bootstrap.place_.node_count = 2;
  bootstrap.place_.node_rank = node_rank;
  bootstrap.place_.node_ranks.clear();
  for (uint32_t i = 0; i < ranks_here; ++i) bootstrap.place_.node_ranks.push_back(2 * i + 1);
  bootstrap.place_.rank = 2 * node_rank + 1;
  bootstrap.place_.size = 2 * ranks_here;
  EXPECT_EQ(find_neighbourhood(bootstrap, most), Status::kOk);
  EXPECT_FALSE(bootstrap.entry_.empty());
  return neighbourhood();
}

TEST(Neighbourhood, WithoutALimitItIsTheWholeHost) {
  for (const uint32_t most : {0u, 5u, 6u, 1000u}) {
    const Neighbourhood& here = cut(5, 2, most);
    EXPECT_EQ(ranks_of(here.neighbours), (std::vector<Rank>{1, 3, 5, 7, 9}));
    EXPECT_EQ(here.my_index, 2u);
    EXPECT_EQ(here.set_size, 2u);
    EXPECT_EQ(here.set_rank, 1u);
  }
}

TEST(Neighbourhood, RanksAgreeOnEveryDivision) {
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    for (uint32_t most = 1; most <= ranks; ++most) {
      const uint32_t parts = (ranks + most - 1) / most;
      for (uint32_t me = 0; me < ranks; ++me) {
        const Neighbourhood& here = cut(ranks, me, most);
        EXPECT_EQ(here.host.size(), ranks);
        const std::vector<Rank> near = ranks_of(here.neighbours);
        EXPECT_LE(near.size(), most);
        EXPECT_TRUE(std::is_sorted(near.begin(), near.end()));
        ASSERT_LT(here.my_index, near.size());
        EXPECT_EQ(near[here.my_index], 2 * me + 1);
        EXPECT_EQ(here.set_size, 2 * parts);
        EXPECT_EQ(here.set_rank, parts + me / most);
        for (uint32_t other = 0; other < ranks; ++other) {
          EXPECT_EQ(here.contains(2 * other + 1), other / most == me / most);
          EXPECT_FALSE(here.contains(2 * other)) << "a rank of the other node";
        }
      }
    }
  }
}

// The entries of four ranks; rank 2 has `entry`.
Status find_in(std::initializer_list<uint32_t> entry, size_t bytes, RankLocation* found) {
  auto store = std::make_unique<testing::FakeBootstrap>();
  const std::vector<uint32_t> words(entry);
  store->set(2, "whereabouts", std::as_bytes(std::span(words)).first(bytes));
  job().bootstrap = std::move(store);
  const Status status = find_location(2, found);
  job().bootstrap.reset();
  return status;
}

TEST(RankLocation, InvalidEntryLeavesTheLocationUnchanged) {
  RankLocation found{.host = 7, .supernode = 8};
  for (const size_t bytes : std::initializer_list<size_t>{0, 1, 4, 8, 11, 13, 16}) {
    EXPECT_NE(find_in({1, 3, 2, 5}, bytes, &found), Status::kOk) << bytes;
    EXPECT_NE(std::string(last_error_text()), "");
    EXPECT_EQ(found.host, 7U);
    EXPECT_EQ(found.supernode, 8U);
  }
  EXPECT_EQ(find_in({3, 0, 1}, 12, &found), Status::kBroken)
      << "rank 2 is below the first of its host";
  EXPECT_EQ(found.host, 7U);
  ASSERT_EQ(find_in({1, 3, 2}, 12, &found), Status::kOk) << last_error_text();
  EXPECT_EQ(found.host, 1U);
  EXPECT_EQ(found.supernode, 3U);
  EXPECT_EQ(found.host_ranks, 2U);
}

// Hosts of a job, by rank.
std::vector<Rank> consecutive_hosts(const std::vector<uint32_t>& host_of) {
  auto store = std::make_unique<testing::FakeBootstrap>();
  JobTopology topology;
  topology.size = static_cast<Rank>(host_of.size());
  topology.leaders.clear();
  for (Rank rank = 0; rank < topology.size; ++rank) {
    const auto first = static_cast<Rank>(std::find(host_of.begin(), host_of.end(), host_of[rank]) -
                                         host_of.begin());
    if (first == rank) topology.leaders.push_back(rank);
    const auto ranks =
        static_cast<uint32_t>(std::count(host_of.begin(), host_of.end(), host_of[rank]));
    const RankLocation location = {.host = first, .supernode = 0, .host_ranks = ranks};
    store->set(rank, "whereabouts", std::as_bytes(std::span(&location, 1)));
  }
  store->stands = topology;
  job().bootstrap = std::move(store);
  std::vector<Rank> found = {77};
  EXPECT_EQ(find_consecutive_hosts(&found), Status::kOk) << last_error_text();
  job().bootstrap.reset();
  return found;
}

TEST(ConsecutiveHosts, AreFoundUnlessRanksAlternate) {
  using Ranks = std::vector<Rank>;
  EXPECT_EQ(consecutive_hosts({0, 0, 0}), Ranks({0}));
  EXPECT_EQ(consecutive_hosts({5, 5, 3, 3, 3, 1}), Ranks({0, 2, 5}));
  EXPECT_EQ(consecutive_hosts({0, 1, 2}), Ranks({0, 1, 2}));
  EXPECT_EQ(consecutive_hosts({0, 1, 0, 1}), Ranks());
  EXPECT_EQ(consecutive_hosts({0, 1, 1, 0}), Ranks());
  EXPECT_EQ(consecutive_hosts({0, 0, 1, 2, 1, 2}), Ranks());
}

}  // namespace
}  // namespace hydrant
