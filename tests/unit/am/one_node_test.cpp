// Clients compiled for one node: how they are recognised and which jobs they are refused in.
#include "am/job/one_node.hpp"

#include "firehose/base/config/config.hpp"
#include "firehose/base/status.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace hydrant {
namespace {

hydrant_client_info client(const char* config) {
  hydrant_client_info info{};
  info.config = config;
  return info;
}

JobTopology make_topology(uint32_t rank, uint32_t nodes) {
  JobTopology place;
  place.rank = rank;
  place.size = 4;
  place.node_count = nodes;
  return place;
}

TEST(OneNode, BuildLineSelectsOneNode) {
  EXPECT_TRUE(assumes_one_node(client("RELEASE=1,CONDUIT=SMP(X),nostats" HYDRANT_ONE_NODE_CONFIG)));
  EXPECT_FALSE(assumes_one_node(client("RELEASE=1,CONDUIT=SMP(X),nostats")));
  EXPECT_FALSE(assumes_one_node(client(nullptr)));
  // The build line of these tests names no network: the default runs on any number of nodes.
  EXPECT_FALSE(assumes_one_node(client(HYDRANT_CLIENT_CONFIG)));
}

TEST(OneNode, SeveralNodesAreRefusedWithARemedy) {
  uint64_t most = 0;
  EXPECT_EQ(keep_to_one_node(make_topology(3, 2), &most), Status::kBadArg);
  const std::string text = last_error_text();
  EXPECT_NE(text.find("2 nodes"), text.npos) << text;
  EXPECT_NE(text.find("GASNET_CONDUIT_SMP"), text.npos) << text;
  EXPECT_NE(text.find("gasnet-ibv-seq"), text.npos) << text;
}

TEST(OneNode, AllRanksAreOneNeighbourhood) {
  setenv("GASNET_SUPERNODE_MAXSIZE", "2", 1);
  for (const uint32_t rank : {0u, 1u}) {
    uint64_t most = 2;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(keep_to_one_node(make_topology(rank, 1), &most), Status::kOk);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(most, 0u);
    EXPECT_EQ(said.find("GASNET_SUPERNODE_MAXSIZE=2 is ignored") != said.npos, rank == 0) << said;
  }
  unsetenv("GASNET_SUPERNODE_MAXSIZE");
  uint64_t most = 0;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(keep_to_one_node(make_topology(0, 1), &most), Status::kOk);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace hydrant
