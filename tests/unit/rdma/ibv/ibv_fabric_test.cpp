// Ranks on adapters and fabrics of several kinds, over the fake: the port that they use, and the ranks that
// they reach.
#include "firehose/base/log.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>

namespace hydrant {
namespace {

using fake_verbs::Call;
using fake_verbs::Device;
using fake_verbs::ipv4_gid;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::PinnedMemory;
using testing::Told;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class IbvFabric : public testing::VerbsTest {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  // Adds a rank to the world; the devices that exist now are those of its node.
  static void add_rank(IbvWorld& world, Rank size, const IbvTransport::Options& options) {
    const auto rank = static_cast<Rank>(world.ranks.size());
    world.ranks.push_back(std::make_unique<IbvRank>(world.box, rank, size, options));
    ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
  }
  // Opens two ranks, each on the port that is named.
  static void open_over(IbvWorld& world, const char* first, const char* second) {
    for (const char* const ports : {first, second}) {
      IbvTransport::Options options = IbvWorld::single();
      options.ports = ports;
      add_rank(world, 2, options);
    }
  }
  static std::string port_of(const IbvRank& rank) { return rank.transport->port().name; }
};

const Device kInfiniBand{.name = "ib0", .ethernet = false, .lid = 3, .gids = {}};

// ---- the choice of a port ----

TEST_F(IbvFabric, RanksOnNodesThatListDevicesDifferentlyReachEachOther) {
  fake_verbs::Gid other = ipv4_gid(1);
  other.gid.raw[14] = 9;  // 10.0.9.1
  fake_verbs::add_device({.name = "roce0", .fabric = 0});
  fake_verbs::add_device({.name = "roce1", .gids = {other}, .fabric = 1});
  IbvWorld world(0);
  add_rank(world, 2, IbvWorld::single());
  fake_verbs::list_backwards(true);
  add_rank(world, 2, IbvWorld::single());
  EXPECT_EQ(port_of(world[0]), port_of(world[1]));
  world.connect(0, 1);
}

TEST_F(IbvFabric, NextPortIsUsedIfSetUpWithTheBestFails) {
  Device unable = kInfiniBand;
  unable.max_qp = 0;
  fake_verbs::add_device(unable);
  fake_verbs::add_device({.name = "roce0"});
  CaptureStderr();
  IbvWorld world(2);
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("roce0 port 1 is used instead of a better one"), HasSubstr("ib0")));
  EXPECT_EQ(port_of(world[0]), "roce0");
  world.connect(0, 1);
}

TEST_F(IbvFabric, NextPortIsUsedIfDatagramsCannotBeSentByTheBest) {
  fake_verbs::add_device(kInfiniBand);
  fake_verbs::add_device({.name = "roce0"});
  // A queue pair was tried on each device, and the third is a trial of the inline size.
  fake_verbs::fail_call(Call::kCreateQp, ENOMEM, 4);
  CaptureStderr();
  testing::CardBox box;
  const IbvRank rank(box, 0, 2, IbvWorld::single());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("cannot create the handshake queue pair"));
  ASSERT_EQ(rank.opened, Status::kOk) << last_error_text();
  EXPECT_EQ(port_of(rank), "roce0");
}

TEST_F(IbvFabric, FailureWithTheBestPortIsReportedIfAllFail) {
  Device unable = kInfiniBand;
  unable.max_qp = 0;
  fake_verbs::add_device(unable);
  fake_verbs::add_device({.name = "roce0", .max_cqe = 1});
  testing::CardBox box;
  const IbvRank rank(box, 0, 2, IbvWorld::single());
  EXPECT_EQ(rank.opened, Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("ib0: cannot create a queue pair"));
}

TEST_F(IbvFabric, PortThatIsNamedIsNotReplacedByAnother) {
  Device unable = kInfiniBand;
  unable.max_qp = 0;
  fake_verbs::add_device(unable);
  fake_verbs::add_device({.name = "roce0"});
  IbvTransport::Options options = IbvWorld::single();
  options.ports = "ib0";
  testing::CardBox box;
  const IbvRank rank(box, 0, 2, options);
  EXPECT_EQ(rank.opened, Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("ib0"));
}

TEST_F(IbvFabric, LogSaysWhyOtherPortsAreNotUsed) {
  fake_verbs::add_device({.name = "roce0"});
  fake_verbs::add_device(kInfiniBand);
  fake_verbs::add_device({.name = "iwarp0", .transport = IBV_TRANSPORT_IWARP});
  testing::CardBox box;
  set_log_level(LogLevel::kInfo);
  CaptureStderr();
  const IbvRank rank(box, 0, 2, IbvWorld::single());
  const std::string log = GetCapturedStderr();
  reset_log_level();
  EXPECT_THAT(log, AllOf(HasSubstr("rank 0 uses ib0 port 1"),
                         HasSubstr("roce0:1 is not used: it is RoCE, and ib0:1 is InfiniBand"),
                         HasSubstr("iwarp0 is not used: iwarp0 cannot be used")));
}

// ---- adapters without shared receive queues ----

TEST_F(IbvFabric, AdapterWithoutSharedReceiveQueuesReceivesByEachQueuePair) {
  fake_verbs::add_device({.max_srq_wr = 0});
  IbvWorld world(4);
  EXPECT_EQ(fake_verbs::live().srqs, 0U);
  for (Rank rank = 1; rank < 4; ++rank) world.connect(0, rank);
  for (uint32_t i = 0; i < 200; ++i) {
    for (Rank rank = 1; rank < 4; ++rank) {
      ASSERT_EQ(world.send(rank, 0, Lane::kRequest, 1, "request"), Status::kOk);
      ASSERT_EQ(world.send_cell(0, rank, Lane::kReply, 1, "reply", "payload"), Status::kOk);
    }
  }
  ASSERT_TRUE(world.arrived(0, 600));
  for (Rank rank = 1; rank < 4; ++rank) ASSERT_TRUE(world.arrived(rank, 200));
}

TEST_F(IbvFabric, AdapterThatRefusesItsLongestReceiveQueueStarts) {
  fake_verbs::add_device({.max_srq_wr = 100, .refuses_longest_srq = true});
  IbvWorld world(3);
  world.connect(0, 1);
  EXPECT_EQ(fake_verbs::live().srqs, 3U);
}

// The driver of such an adapter may report a limit nevertheless.
TEST_F(IbvFabric, AdapterThatRefusesASharedReceiveQueueReceivesByEachQueuePair) {
  fake_verbs::add_device({});
  fake_verbs::fail_always(Call::kCreateSrq, EOPNOTSUPP);
  IbvWorld world(2);
  world.connect(0, 1);
  EXPECT_EQ(fake_verbs::live().srqs, 0U);
}

TEST_F(IbvFabric, BuffersOfAFailedQueuePairAreNotPostedAgain) {
  fake_verbs::add_device({.max_srq_wr = 0});
  IbvWorld world(2);
  world.connect(0, 1);
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
  ASSERT_TRUE(world.until([&] { return world[0].transport->counts().lost == 1; }));
  for (int i = 0; i < 100; ++i) world[0].poll();
  const uint64_t posted = fake_verbs::calls(Call::kPostRecv);
  for (int i = 0; i < 100; ++i) world[0].poll();
  EXPECT_EQ(fake_verbs::calls(Call::kPostRecv), posted);
}

// A search would meet a peer without a queue pair, and crash.
TEST_F(IbvFabric, NoPeerIsSearchedForAFlushedBuffer) {
  testing::CardBox box;
  testing::BoxBootstrap bootstrap(box, 0, 2);
  ibv::TransportParts parts(bootstrap, IbvWorld::single());
  ASSERT_EQ(parts.peers.open(2), Status::kOk);
  ASSERT_EQ(parts.receiving.open(parts.options, parts.port, 0), Status::kOk);
  (void)parts.peers.publish(std::make_unique<ibv::Peer>());
  alignas(8) std::array<std::byte, 64> memory = {};
  ibv::ReceiveBuffer buffer;
  buffer.set(memory.data(), memory.size(), 0);
  ibv_wc flushed{};
  flushed.wr_id = buffer.work.wr_id;
  flushed.status = IBV_WC_WR_FLUSH_ERR;
  flushed.qp_num = 0x11;
  parts.receiving.accept(flushed);
  EXPECT_FALSE(parts.receiving.has_undelivered());
  EXPECT_FALSE(parts.receiving.has_unposted());
}

TEST_F(IbvFabric, ReceiveQueueThatIsTooShortForAPeerIsReported) {
  fake_verbs::add_device({.max_srq_wr = 0, .max_qp_wr = 71});
  testing::CardBox box;
  EXPECT_EQ(IbvRank(box, 0, 2, IbvWorld::single()).opened, Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 71 receive buffers, one peer needs 72"));
}

// ---- addresses ----

fake_verbs::Gid infiniband_gid(uint8_t subnet, uint8_t last) {
  fake_verbs::Gid made;
  made.gid.raw[0] = 0xfe;
  made.gid.raw[1] = 0x80;
  made.gid.raw[7] = subnet;
  made.gid.raw[15] = last;
  return made;
}

fake_verbs::Gid version_1(fake_verbs::Gid gid) {
  gid.type = IBV_GID_TYPE_ROCE_V1;
  return gid;
}

TEST_F(IbvFabric, PortThatDemandsGlobalHeadersGetsThem) {
  fake_verbs::add_device({.name = "ib0",
                          .ethernet = false,
                          .lid = 3,
                          .gids = {infiniband_gid(0, 1)},
                          .flags = IBV_QPF_GRH_REQUIRED});
  IbvWorld world(2);
  world.connect(0, 1);
  EXPECT_EQ(fake_verbs::traffic().unreachable, 0U);
}

// The one port needs no global header by itself, and its peer's port does.
TEST_F(IbvFabric, PortsOfWhichOneDemandsGlobalHeadersReachEachOther) {
  Device device{.name = "ib0", .ethernet = false, .lid = 3, .gids = {infiniband_gid(0, 1)}};
  fake_verbs::add_device(device);
  device.name = "ib1";
  device.lid = 4;
  device.gids = {infiniband_gid(0, 2)};
  device.flags = IBV_QPF_GRH_REQUIRED;
  fake_verbs::add_device(device);
  IbvWorld world(0);
  open_over(world, "ib0", "ib1");
  world.connect(0, 1);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U);
  for (ibv_qp* const pair : fake_verbs::connected_pairs())
    EXPECT_EQ(fake_verbs::address_of(pair).is_global, 1);
}

TEST_F(IbvFabric, PortThatDemandsGlobalHeadersAndHasNoGidIsNotUsed) {
  Device device = kInfiniBand;
  device.flags = IBV_QPF_GRH_REQUIRED;
  fake_verbs::add_device(device);
  testing::CardBox box;
  EXPECT_EQ(IbvRank(box, 0, 2, IbvWorld::single()).opened, Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("GRH"), HasSubstr("subnet manager")));
}

TEST_F(IbvFabric, InfiniBandWithoutSuchDemandsHasNoGlobalHeaders) {
  fake_verbs::add_device(kInfiniBand);
  IbvWorld world(2);
  world.connect(0, 1);
  for (ibv_qp* const pair : fake_verbs::connected_pairs())
    EXPECT_EQ(fake_verbs::address_of(pair).is_global, 0);
}

TEST_F(IbvFabric, ServiceLevelAndTrafficClassAreThoseOfTheKnobs) {
  const auto addresses = [](uint8_t level, uint8_t traffic_class) {
    IbvWorld world(2);
    world.connect(0, 1);
    const std::vector<ibv_qp*> pairs = fake_verbs::connected_pairs();
    return pairs.size() == 2 && std::all_of(pairs.begin(), pairs.end(), [&](ibv_qp* pair) {
             const ibv_ah_attr address = fake_verbs::address_of(pair);
             return address.sl == level && address.grh.traffic_class == traffic_class;
           });
  };
  fake_verbs::add_device({});
  EXPECT_TRUE(addresses(0, 106));
  const ScopedEnv level("HYDRANT_IBV_SL", "5");
  const ScopedEnv traffic_class("HYDRANT_IBV_TRAFFIC_CLASS", "0x20");
  EXPECT_TRUE(addresses(5, 0x20));
}

TEST_F(IbvFabric, LimitedMemberOfThePartitionAtIndexZeroUsesAFullMembership) {
  Device device = kInfiniBand;
  device.pkeys = {0x7fff, 0, 0x8001};
  fake_verbs::add_device(device);
  IbvWorld world(2);
  EXPECT_EQ(world[0].transport->port().pkey_index, 2);
  world.connect(0, 1);
}

TEST_F(IbvFabric, PortThatIsOnlyALimitedMemberIsNotUsed) {
  Device device = kInfiniBand;
  device.pkeys = {0x7fff};
  fake_verbs::add_device(device);
  testing::CardBox box;
  EXPECT_EQ(IbvRank(box, 0, 2, IbvWorld::single()).opened, Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("limited member"), HasSubstr("0x7fff"),
                                       HasSubstr("HYDRANT_IBV_PKEY")));
  fake_verbs::add_device({.name = "roce0"});
  const IbvRank rank(box, 0, 2, IbvWorld::single());
  ASSERT_EQ(rank.opened, Status::kOk) << last_error_text();
  EXPECT_EQ(port_of(rank), "roce0");
}

TEST_F(IbvFabric, PartitionIsThatOfTheKnob) {
  Device device = kInfiniBand;
  device.pkeys = {0xffff, 0x8005};
  fake_verbs::add_device(device);
  device.name = "ib1";
  device.lid = 4;
  device.pkeys = {0xffff, 0x7fff, 0x0005};  // a limited member, which reaches the full one
  fake_verbs::add_device(device);
  {
    const ScopedEnv partition("HYDRANT_IBV_PKEY", "0x8005");
    IbvWorld world(0);
    open_over(world, "ib0", "ib1");
    world.connect(0, 1);
  }
  const ScopedEnv partition("HYDRANT_IBV_PKEY", "0x8006");
  testing::CardBox box;
  EXPECT_EQ(IbvRank(box, 0, 2, IbvWorld::single()).opened, Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("in no partition 0x8006"));
}

TEST_F(IbvFabric, VersionsOfGidsThatDifferAreRefusedWithAText) {
  fake_verbs::add_device({.name = "roce1", .gids = {version_1(ipv4_gid(1))}});
  fake_verbs::add_device({.name = "roce2", .gids = {ipv4_gid(2)}});
  IbvWorld world(0);
  open_over(world, "roce1", "roce2");
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("rank 1 at 10.0.0.2 cannot be reached from roce1 port 1"),
                    HasSubstr("version 2, that of this process of version 1")));
  EXPECT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("version 1, that of this process of version 2"));
}

TEST_F(IbvFabric, SubnetsThatDifferAreRefusedWithAText) {
  Device device{.name = "ib0", .ethernet = false, .lid = 3, .gids = {infiniband_gid(1, 1)}};
  fake_verbs::add_device(device);
  device.name = "ib1";
  device.gids = {infiniband_gid(2, 2)};
  fake_verbs::add_device(device);
  IbvWorld world(0);
  open_over(world, "ib0", "ib1");
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("it is in another subnet"));
}

// More reads under way than the peer's adapter accepts would end the connection.
TEST_F(IbvFabric, ReadsUnderWayAreLimitedByBothAdapters) {
  fake_verbs::add_device({.name = "large0"});
  fake_verbs::add_device({.name = "small0", .max_reads = 2});
  IbvWorld world(0);
  open_over(world, "large0", "small0");
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, testing::kTarget, 4096);
  std::array<Told, 12> told;
  for (Told& one : told) {
    ASSERT_EQ(world.insist([&] {
      return world[0].transport->pinned()->get(1, there.for_peer(), here.local(), 64, &one);
    }),
              Status::kOk);
  }
  ASSERT_TRUE(world.until([&] { return told.back().times != 0; }));
  for (const Told& one : told) EXPECT_EQ(one.status, Status::kOk);
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
}

}  // namespace
}  // namespace hydrant
