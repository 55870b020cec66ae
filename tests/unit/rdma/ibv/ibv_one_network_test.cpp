// The network that the nodes of a job agree on, over the fake: what they publish and read, and the ports that
// follow from it.
#include "rdma/ibv/network_agreement.hpp"
#include "rdma/transport/memory_access.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using fake_verbs::Device;
using ibv::NetworkId;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using ::testing::Not;

constexpr const char* kEntry = "networks";

Device infiniband_device(const char* name, uint8_t subnet = 0) {
  fake_verbs::Gid gid;
  gid.gid.raw[0] = 0xfe;
  gid.gid.raw[1] = 0x80;
  gid.gid.raw[7] = subnet;
  return {.name = name, .ethernet = false, .lid = 3, .sm_lid = 1, .gids = {gid}};
}

// An adapter on the network 10.0.`network`.0.
Device roce_device(const char* name, uint8_t network, uint8_t speed = 32) {
  fake_verbs::Gid gid = fake_verbs::ipv4_gid(1);
  gid.gid.raw[14] = network;
  return {.name = name, .gids = {gid}, .speed = speed, .fabric = uint32_t{network} + 1};
}

Device down(Device device) {
  device.state = IBV_PORT_DOWN;
  return device;
}

// A job with two ranks on each node, and one store for all entries.
class OneNetwork : public testing::VerbsTest {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  // A further node, with these devices.
  void add_node(std::vector<Device> devices) { nodes_.push_back(std::move(devices)); }
  // The following calls are made by this rank.
  void become(Rank rank) {
    const auto nodes = static_cast<uint32_t>(nodes_.size());
    JobTopology& here = store_.stands;
    here = {};
    here.rank = rank;
    here.size = 2 * nodes;
    here.node = rank / 2;
    here.node_count = nodes;
    here.node_ranks = {rank / 2 * 2, rank / 2 * 2 + 1};
    here.node_rank = rank % 2;
    here.leaders.clear();
    for (uint32_t node = 0; node < nodes; ++node) here.leaders.push_back(2 * node);
    fake_verbs::next_node();
    for (const Device& device : nodes_[rank / 2]) fake_verbs::add_device(device);
  }
  void publish() {
    for (Rank rank = 0; rank < 2 * nodes_.size(); ++rank) {
      become(rank);
      ASSERT_EQ(ibv::publish_networks(store_), Status::kOk) << last_error_text();
    }
  }
  Status agree(std::byte* board = nullptr, uint64_t deadline_ns = UINT64_MAX) {
    store_.gets = 0;
    return ibv::agree_on_network(store_, board, deadline_ns, &common_);
  }
  // The port that the rank opens, or the text of the error.
  std::string port_of(Rank rank) {
    become(rank);
    if (agree() != Status::kOk) return last_error_text();
    ibv::Port port;
    ibv::PortSettings settings;
    if (common_.has_value()) settings.network = &*common_;
    if (ibv::open_port("", &port, settings) != Status::kOk) return last_error_text();
    close_ibv_device(port.device);
    return port.name;
  }

  testing::FakeBootstrap store_;
  std::vector<std::vector<Device>> nodes_;
  std::optional<NetworkId> common_;
};

// ---- the choice ----

TEST_F(OneNetwork, NodeWithoutInfiniBandMakesAllUseRoce) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  add_node({roce_device("roce5", 0)});
  publish();
  EXPECT_EQ(port_of(0), "roce0");
  EXPECT_EQ(port_of(1), "roce0");
  EXPECT_EQ(port_of(2), "roce5");
}

TEST_F(OneNetwork, PortThatIsDownDoesNotCount) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  add_node({down(infiniband_device("ib0")), roce_device("roce0", 0)});
  publish();
  EXPECT_EQ(port_of(0), "roce0");
  EXPECT_EQ(port_of(2), "roce0");
}

TEST_F(OneNetwork, InfiniBandIsUsedIfAllNodesHaveIt) {
  add_node({roce_device("roce0", 0, 128), infiniband_device("ib0")});
  add_node({infiniband_device("ib3"), roce_device("roce0", 0, 128)});
  publish();
  EXPECT_EQ(port_of(0), "ib0");
  EXPECT_EQ(port_of(2), "ib3");
}

// The lowest network is not the one that all have, and neither is that of the first port.
TEST_F(OneNetwork, PortsThatAreListedInAnotherOrderAreOfOneNetwork) {
  add_node({infiniband_device("ib0", 1), infiniband_device("ib1", 2), infiniband_device("ib2", 3)});
  add_node({infiniband_device("ib0", 3), infiniband_device("ib1", 2)});
  add_node({infiniband_device("ib0", 2), infiniband_device("ib1", 1), infiniband_device("ib2", 3)});
  publish();
  EXPECT_EQ(port_of(0), "ib1");
  EXPECT_EQ(port_of(2), "ib1");
  EXPECT_EQ(port_of(4), "ib0");
  fake_verbs::list_backwards(true);
  publish();
  EXPECT_EQ(port_of(0), "ib1");
  EXPECT_EQ(port_of(4), "ib0");
}

// The slowest node decides how fast a network is.
TEST_F(OneNetwork, NetworkThatIsFastOnEachNodeIsPreferred) {
  Device slow = infiniband_device("ib0", 1);
  slow.width = 1;
  add_node({infiniband_device("ib0", 1), infiniband_device("ib1", 2)});
  add_node({slow, infiniband_device("ib1", 2)});
  publish();
  EXPECT_EQ(port_of(0), "ib1");
  EXPECT_EQ(port_of(2), "ib1");
}

TEST_F(OneNetwork, FabricsWithOnePrefixAndTwoSubnetManagersAreTwo) {
  Device other = infiniband_device("ib1");
  other.sm_lid = 2;
  add_node({infiniband_device("ib0"), other});
  add_node({other});
  publish();
  EXPECT_EQ(port_of(0), "ib1");
  EXPECT_EQ(port_of(2), "ib1");
}

// Each adapter may be on a network of its own, with routers between them.
TEST_F(OneNetwork, FastRoceNetworksThatDifferAreNotLeftForASlowOneThatAllHave) {
  add_node({roce_device("fast0", 1), roce_device("slow0", 9, 1)});
  add_node({roce_device("fast0", 2), roce_device("slow0", 9, 1)});
  publish();
  EXPECT_EQ(port_of(0), "fast0");
  EXPECT_EQ(port_of(2), "fast0");
}

TEST_F(OneNetwork, RoceNetworkThatAllHaveIsPreferredToOnesThatAreNoFaster) {
  add_node({roce_device("roce0", 1), roce_device("roce1", 9)});
  add_node({roce_device("roce0", 9)});
  publish();
  EXPECT_EQ(port_of(0), "roce1");
  EXPECT_EQ(port_of(2), "roce0");
}

TEST_F(OneNetwork, NodesWithOneRoceNetworkEachMayBeRouted) {
  add_node({roce_device("roce0", 1)});
  add_node({roce_device("roce0", 2)});
  publish();
  EXPECT_EQ(port_of(0), "roce0");
  EXPECT_EQ(port_of(2), "roce0");
}

// ---- no common network ----

TEST_F(OneNetwork, NodesWithoutACommonNetworkAreNamedWithWhatTheyHave) {
  add_node({infiniband_device("ib0")});
  add_node({roce_device("roce0", 7)});
  publish();
  EXPECT_THAT(port_of(0),
              AllOf(HasSubstr("no network is common to all 2 nodes"),
                    HasSubstr("(rank 0) has InfiniBand fe80:: (subnet manager 1), 100 Gbit/s"),
                    HasSubstr("(rank 2) has RoCE 10.0.7.0, 100 Gbit/s"),
                    HasSubstr("HYDRANT_IBV_PORTS"), Not(HasSubstr("third"))));
  EXPECT_THAT(port_of(2), HasSubstr("no network is common to all 2 nodes"));
  EXPECT_EQ(agree(), Status::kUnsupported);
}

// Each node has but one network, and compares it with that of the next node alone.
TEST_F(OneNetwork, NodeThatDiffersFromAllOthersIsFoundByItsNeighbours) {
  for (int i = 0; i < 5; ++i) add_node({infiniband_device("ib0")});
  nodes_[3] = {down(infiniband_device("ib0")), roce_device("roce0", 0)};
  publish();
  EXPECT_EQ(port_of(0), "ib0");
  EXPECT_THAT(port_of(4), AllOf(HasSubstr("(rank 4) has InfiniBand"), HasSubstr("(rank 6) has")));
  EXPECT_THAT(port_of(6), AllOf(HasSubstr("(rank 6) has RoCE"), HasSubstr("(rank 8) has")));
}

TEST_F(OneNetwork, ThirdNodeMayLackWhatTwoHave) {
  add_node({infiniband_device("ib0", 1), infiniband_device("ib1", 2)});
  add_node({infiniband_device("ib0", 2), infiniband_device("ib1", 3)});
  add_node({infiniband_device("ib0", 3), infiniband_device("ib1", 1)});
  publish();
  EXPECT_THAT(port_of(0),
              AllOf(HasSubstr("(rank 0)"), HasSubstr("(rank 4)"), HasSubstr("third node lacks")));
  EXPECT_THAT(port_of(2), HasSubstr("no network is common to all 3 nodes"));
}

TEST_F(OneNetwork, VersionsOfRoceAreTwoNetworks) {
  Device old = roce_device("roce0", 0);
  old.gids[0].type = IBV_GID_TYPE_ROCE_V1;
  add_node({old});
  add_node({roce_device("roce0", 0)});
  publish();
  EXPECT_THAT(port_of(0),
              AllOf(HasSubstr("has RoCE version 1 10.0.0.0"), HasSubstr("has RoCE 10")));
}

// That the node itself has no port is said by the attempt to open one.
TEST_F(OneNetwork, NodeWithoutAPortIsNamed) {
  add_node({infiniband_device("ib0")});
  add_node({down(infiniband_device("ib0"))});
  publish();
  EXPECT_THAT(port_of(0), HasSubstr("(rank 2) has no usable port"));
  EXPECT_THAT(port_of(2), HasSubstr("ib0 port 1 is down"));
}

TEST_F(OneNetwork, EntryThatIsMissingOrInvalidIsReported) {
  add_node({infiniband_device("ib0")});
  add_node({infiniband_device("ib0")});
  publish();
  become(0);
  const testing::FakeBootstrap::Value entry = store_.entries[{2, kEntry}];
  for (size_t byte = 0; byte < 6; ++byte) {  // its version, and the number of networks
    testing::FakeBootstrap::Value damaged = entry;
    damaged[byte] = std::byte{0xee};
    store_.set(2, kEntry, damaged);
    EXPECT_EQ(agree(), Status::kBroken) << byte;
  }
  store_.set(2, kEntry, std::span(entry).first(entry.size() - 1));
  EXPECT_EQ(agree(), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("the entry 'networks' of rank 2"));
  store_.entries.erase({2, kEntry});
  EXPECT_EQ(agree(), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("the networks of the node of rank 2"));
}

// ---- what is exchanged ----

TEST_F(OneNetwork, PortsThatAreNamedAreNotCompared) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  add_node({roce_device("roce0", 0)});
  add_node({infiniband_device("ib0")});
  publish();
  {
    const ScopedEnv named("HYDRANT_IBV_PORTS", "roce0");
    const uint64_t opened = fake_verbs::calls(Call::kOpenDevice);
    become(2);
    ASSERT_EQ(ibv::publish_networks(store_), Status::kOk);
    EXPECT_EQ(fake_verbs::calls(Call::kOpenDevice), opened);
    EXPECT_EQ(agree(), Status::kOk);
    EXPECT_FALSE(common_.has_value());
    EXPECT_EQ(store_.gets, 0U);
  }
  // The others do not wait for it.
  EXPECT_EQ(port_of(0), "ib0");
  EXPECT_EQ(port_of(4), "ib0");
}

TEST_F(OneNetwork, RanksOfOneNodeExchangeNothing) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  become(0);
  EXPECT_EQ(agree(), Status::kOk);
  EXPECT_EQ(store_.gets, 0U);
  EXPECT_FALSE(common_.has_value());
}

TEST_F(OneNetwork, LauncherThatDoesNotPlaceRanksLeavesThePortsFree) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  add_node({roce_device("roce0", 0)});
  publish();
  become(0);
  store_.stands.leaders.clear();
  EXPECT_EQ(agree(), Status::kOk);
  EXPECT_FALSE(common_.has_value());
}

// 1,000 nodes: their leaders read each entry once if there is a choice, and else that of the next node.
TEST_F(OneNetwork, NodeReadsEachOfAThousandEntriesOnceAndOnlyIfItHasAChoice) {
  constexpr uint32_t kNodes = 1000;
  for (const bool has_choice : {true, false}) {
    nodes_.clear();
    add_node({infiniband_device("ib0")});
    if (has_choice) nodes_[0].push_back(roce_device("roce0", 0));
    publish();
    const testing::FakeBootstrap::Value entry = store_.entries[{0, kEntry}];
    nodes_.assign(kNodes, std::vector<Device>(nodes_[0]));
    for (Rank node = 0; node < kNodes; ++node) store_.set(2 * node, kEntry, entry);
    alignas(64) std::array<std::byte, MemoryAccess::kStartBytes> board = {};
    become(2 * 499);
    ASSERT_EQ(agree(board.data()), Status::kOk) << last_error_text();
    EXPECT_EQ(store_.gets, has_choice ? kNodes : 2U);
    EXPECT_EQ(common_.has_value(), has_choice);
    const std::optional<NetworkId> first = common_;
    become(2 * 499 + 1);
    ASSERT_EQ(agree(board.data()), Status::kOk) << last_error_text();
    EXPECT_EQ(store_.gets, 0U);
    EXPECT_EQ(common_, first);
  }
}

TEST_F(OneNetwork, RanksOfANodeFailWithTheirFirstRank) {
  add_node({infiniband_device("ib0")});
  add_node({roce_device("roce0", 0)});
  publish();
  alignas(64) std::array<std::byte, MemoryAccess::kStartBytes> board = {};
  become(3);
  EXPECT_EQ(agree(board.data(), 0), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 2, the first of this node, has not told in time"));
  become(2);
  EXPECT_EQ(agree(board.data()), Status::kUnsupported);
  become(3);
  EXPECT_EQ(agree(board.data()), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 2, the first of this node, has found no network"));
}

// ---- transports ----

// Without the agreement rank 0 would take the adapter that is on no fabric of rank 1.
TEST_F(OneNetwork, RanksWhoseBestPortsDifferReachEachOther) {
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  add_node({roce_device("roce0", 0)});
  nodes_[1][0].gids = {fake_verbs::ipv4_gid(2)};
  publish();
  IbvWorld world(0);
  for (Rank rank = 0; rank < 2; ++rank) {
    become(2 * rank);
    IbvTransport::Options options = IbvWorld::single();
    ASSERT_EQ(ibv::agree_on_network(store_, nullptr, UINT64_MAX, &options.node.network),
              Status::kOk);
    world.ranks.push_back(std::make_unique<IbvRank>(world.box, rank, 2, options));
    ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
    EXPECT_STREQ(world[rank].transport->port().name, "roce0");
  }
  world.connect(0, 1);
}

TEST_F(OneNetwork, PortOfAnotherNetworkDoesNotReplaceOneThatFails) {
  Device unable = infiniband_device("ib0");
  unable.max_qp = 0;
  add_node({unable, roce_device("roce0", 0)});
  add_node({infiniband_device("ib0"), roce_device("roce0", 0)});
  publish();
  become(0);
  IbvTransport::Options options = IbvWorld::single();
  ASSERT_EQ(ibv::agree_on_network(store_, nullptr, UINT64_MAX, &options.node.network), Status::kOk);
  testing::CardBox box;
  {
    const IbvRank rank(box, 0, 2, options);
    EXPECT_EQ(rank.opened, Status::kResource);
    EXPECT_THAT(last_error_text(), HasSubstr("ib0: cannot create a queue pair"));
  }
  fake_verbs::next_node();
  fake_verbs::add_device(roce_device("roce0", 0));
  const IbvRank rank(box, 0, 2, options);
  EXPECT_EQ(rank.opened, Status::kUnsupported);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("roce0 port 1 is not on the network that all nodes of the job have"),
                    HasSubstr("InfiniBand fe80::")));
}

}  // namespace
}  // namespace hydrant
