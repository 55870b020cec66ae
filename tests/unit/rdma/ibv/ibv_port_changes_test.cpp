// Ports whose address changes while a job runs, over the fake: what first contacts report, and that connected
// ranks go on.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::Device;
using fake_verbs::facts_of;
using fake_verbs::ipv4_gid;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// Three ranks, each on a node of its own. Ranks 0 and 1 are connected.
class IbvPortChanges : public testing::VerbsTest {
 protected:
  static constexpr const char* kNames[] = {"ib0", "ib1", "ib2"};

  void SetUp() override {
    fake_verbs::reset();
    for (uint16_t i = 0; i < 3; ++i)
      fake_verbs::add_device({.name = kNames[i],
                              .ethernet = false,
                              .lid = static_cast<uint16_t>(3 + i),
                              .gids = {gid_with(1)}});
    for (Rank rank = 0; rank < 3; ++rank) {
      IbvTransport::Options options = IbvWorld::single();
      options.ports = kNames[rank];
      world_.ranks.push_back(std::make_unique<IbvRank>(world_.box, rank, 3, options));
      ASSERT_EQ(world_[rank].opened, Status::kOk) << last_error_text();
    }
    world_.connect(0, 1);
  }
  void TearDown() override {
    world_.ranks.clear();
    VerbsTest::TearDown();
  }
  static fake_verbs::Gid gid_with(uint8_t prefix) {
    fake_verbs::Gid made;
    made.gid.raw[7] = prefix;
    made.gid.raw[15] = 1;
    made.type = IBV_GID_TYPE_IB;
    return made;
  }
  // Rank 0 reads the event of its port.
  void raise(ibv_event_type event) {
    fake_verbs::raise_event(world_[0].transport->port().device.context, event, 1, nullptr);
    (void)world_[0].transport->notices().arm_events();
  }

  IbvWorld world_{0};
};

TEST_F(IbvPortChanges, LidThatHasChangedIsNamedUntilItComesBack) {
  facts_of("ib0").lid = 9;
  CaptureStderr();
  raise(IBV_EVENT_LID_CHANGE);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("ib0 port 1 has lost LID 3 (it has LID 9)"));
  EXPECT_EQ(world_[0].try_send(2, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("ib0 port 1 has lost LID 3 (it has LID 9)"),
                    HasSubstr("start the job again; first contact with rank 2")));
  facts_of("ib0").lid = 3;
  CaptureStderr();
  raise(IBV_EVENT_LID_CHANGE);
  EXPECT_THAT(GetCapturedStderr(), Not(HasSubstr("has lost")));
  EXPECT_EQ(world_.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_EQ(world_.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_TRUE(world_.arrived(1, 1) && world_.arrived(2, 1));
}

TEST_F(IbvPortChanges, RankThatHasLostItsAddressRefusesAndStaysConnected) {
  facts_of("ib0").pkeys = {0x8005};
  CaptureStderr();
  EXPECT_EQ(world_.send(2, 0, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 0 at LID 3 refuses the connection: its port has "
                                           "lost the address"));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("ib0 port 1 has lost P_Key 0xffff at index 0"));
  EXPECT_EQ(world_.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_EQ(world_.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_TRUE(world_.arrived(1, 1) && world_.arrived(0, 1));
}

TEST_F(IbvPortChanges, PortThatIsDownIsWaitedFor) {
  facts_of("ib0").state = IBV_PORT_DOWN;
  facts_of("ib0").lid = 0;
  EXPECT_EQ(world_[0].try_send(2, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  facts_of("ib0").state = IBV_PORT_ACTIVE;
  facts_of("ib0").lid = 3;
  EXPECT_EQ(world_.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
}

TEST_F(IbvPortChanges, OtherSubnetManagerChangesNothing) {
  facts_of("ib0").sm_lid = 77;
  facts_of("ib0").gids = {gid_with(2)};
  CaptureStderr();
  raise(IBV_EVENT_CLIENT_REREGISTER);
  EXPECT_THAT(GetCapturedStderr(), Not(HasSubstr("has lost")));
  EXPECT_EQ(world_.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
}

// Rank 2 demands global headers, which have the GID.
TEST_F(IbvPortChanges, GidThatIsGoneIsNamedToAPeerThatNeedsIt) {
  fake_verbs::add_device({.name = "ib3",
                          .ethernet = false,
                          .lid = 6,
                          .gids = {gid_with(1)},
                          .flags = IBV_QPF_GRH_REQUIRED});
  IbvTransport::Options options = IbvWorld::single();
  options.ports = "ib3";
  world_.ranks[2].reset();
  world_.ranks[2] = std::make_unique<IbvRank>(world_.box, 2, 3, options);
  ASSERT_EQ(world_[2].opened, Status::kOk) << last_error_text();
  facts_of("ib0").gids = {gid_with(2)};
  EXPECT_EQ(world_[0].try_send(2, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("ib0 port 1 has lost GID"));
}

class IbvGidChanges : public testing::VerbsTest {
 protected:
  void SetUp() override {
    fake_verbs::reset();
    fake_verbs::add_device({.name = "roce0", .gids = {ipv4_gid(1), ipv4_gid(2)}});
  }
};

// The interface has lost its address, and got it again after another one.
TEST_F(IbvGidChanges, GidAtAnotherIndexIsFoundThere) {
  IbvWorld world(2);
  facts_of("roce0").gids = {ipv4_gid(2), ipv4_gid(1)};
  world.connect(0, 1);
  ASSERT_EQ(fake_verbs::connected_pairs().size(), 2U);
  for (ibv_qp* const pair : fake_verbs::connected_pairs())
    EXPECT_EQ(fake_verbs::address_of(pair).grh.sgid_index, 1);
}

// RoCE has no routes then: neither for an address handle, nor for the queue pair whose handshake is answered.
TEST_F(IbvGidChanges, PortThatIsDownIsWaitedFor) {
  for (const bool is_answered : {false, true}) {
    IbvWorld world(2);
    if (is_answered) {
      ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
      for (uint32_t i = 0; i < 16; ++i) world[1].poll();
      ASSERT_GE(world[1].transport->counts().handshakes, 1U);
    }
    facts_of("roce0").state = IBV_PORT_DOWN;
    CaptureStderr();
    for (uint32_t i = 0; i < 16; ++i) {
      EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady)
          << last_error_text();
      world[0].poll();
    }
    (void)GetCapturedStderr();
    EXPECT_THAT(last_error_text(), HasSubstr("Network is unreachable (the port is down)"));
    facts_of("roce0").state = IBV_PORT_ACTIVE;
    EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
    EXPECT_EQ(world[0].transport->counts().lost, 0U);
  }
}

TEST_F(IbvGidChanges, GidThatIsGoneIsNamed) {
  IbvWorld world(2);
  fake_verbs::Gid other_version = ipv4_gid(1);
  other_version.type = IBV_GID_TYPE_ROCE_V1;
  facts_of("roce0").gids = {other_version, ipv4_gid(2)};
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("roce0 port 1 has lost GID 10.0.0.1"));
}

}  // namespace
}  // namespace hydrant
