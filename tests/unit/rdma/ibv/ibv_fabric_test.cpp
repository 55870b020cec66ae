// Ranks on adapters and fabrics of several kinds, over the fake: the port that they use, and the ranks that
// they reach.
#include "firehose/base/log.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace hydrant {
namespace {

using fake_verbs::Call;
using fake_verbs::Device;
using fake_verbs::ipv4_gid;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
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
  // The first queue pair is a trial of the inline size, the second that for datagrams.
  fake_verbs::fail_call(Call::kCreateQp, EOPNOTSUPP, 2);
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

}  // namespace
}  // namespace hydrant
