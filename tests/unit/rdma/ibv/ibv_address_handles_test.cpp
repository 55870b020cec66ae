// Address handles: they live as long as a handshake, and few of them suffice for many peers.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::SimulatedClock;

class IbvAddressHandles : public testing::VerbsTest {};

TEST_F(IbvAddressHandles, AreGoneAfterTheHandshakes) {
  IbvWorld world(3);
  world.connect(0, 1);
  world.connect(1, 2);
  world.connect(2, 0);
  EXPECT_TRUE(world.until([] { return fake_verbs::live().ahs == 0; }));
  EXPECT_GE(fake_verbs::calls(fake_verbs::Call::kCreateAh), 3U);
}

TEST_F(IbvAddressHandles, AreSharedByTheRanksOfANode) {
  IbvWorld world(6);  // all on the same port
  for (Rank rank = 1; rank < 6; ++rank)
    ASSERT_EQ(world[0].try_send(rank, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  EXPECT_EQ(fake_verbs::live().ahs, 1U);
}

// Other processes hold all of the adapter's.
TEST_F(IbvAddressHandles, ShortageCostsOneCallInAWhileHoweverManyPeersWait) {
  constexpr Rank kPeers = 20;
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.clock = SimulatedClock::read;
  IbvWorld world(kPeers + 1, options);
  fake_verbs::fail_always(Call::kCreateAh, ENOMEM);
  ::testing::internal::CaptureStderr();
  for (Rank to = 1; to <= kPeers; ++to)
    ASSERT_EQ(world[0].try_send(to, Lane::kRequest, 1, "abcd"), Status::kNotReady)
        << last_error_text();
  const uint64_t before = fake_verbs::calls(Call::kCreateAh);
  for (uint32_t ms = 0; ms < 1000; ++ms) {
    SimulatedClock::elapse(1);
    world[0].poll();
  }
  EXPECT_GT(fake_verbs::calls(Call::kCreateAh), before);
  EXPECT_LE(fake_verbs::calls(Call::kCreateAh), before + 50);
  (void)::testing::internal::GetCapturedStderr();
  fake_verbs::fail_always(Call::kCreateAh, 0);
  for (Rank to = 1; to <= kPeers; ++to) {
    EXPECT_EQ(world.insist([&] {
      SimulatedClock::elapse(1);
      return world[0].try_send(to, Lane::kRequest, 1, "abcd");
    }),
              Status::kOk)
        << to;
  }
}

// All ranks are on one node.
TEST_F(IbvAddressHandles, SilentNodeIsAskedOnceInAWhileHoweverManyOfItsRanksWait) {
  constexpr Rank kPeers = 20;
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.refused_ns = 5000 * SimulatedClock::kMillisecond;
  options.handshakes.clock = SimulatedClock::read;
  IbvWorld world(kPeers + 1, options);
  fake_verbs::fail_always(Call::kCreateAh, EHOSTUNREACH);
  ::testing::internal::CaptureStderr();
  for (Rank to = 1; to <= kPeers; ++to)
    ASSERT_EQ(world[0].try_send(to, Lane::kRequest, 1, "abcd"), Status::kNotReady)
        << last_error_text();
  for (uint32_t ms = 0; ms < 12'000; ++ms) {
    SimulatedClock::elapse(1);
    world[0].poll();
  }
  EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), 3U);
  EXPECT_THAT(last_error_text(), HasSubstr("(its node does not answer ARP)"));
  (void)::testing::internal::GetCapturedStderr();
  fake_verbs::fail_always(Call::kCreateAh, 0);
  for (Rank to = 1; to <= kPeers; ++to) {
    EXPECT_EQ(world.insist([&] {
      SimulatedClock::elapse(10);
      return world[0].try_send(to, Lane::kRequest, 1, "abcd");
    }),
              Status::kOk)
        << to << " " << last_error_text();
  }
}

TEST_F(IbvAddressHandles, RankOfASilentNodeIsAnsweredLater) {
  IbvWorld world(2);
  fake_verbs::fail_call(Call::kCreateAh, ETIMEDOUT, 2);  // that of rank 1, which answers
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_TRUE(world.arrived(1, 1));
  (void)::testing::internal::GetCapturedStderr();
}

// Connecting a queue pair asks its node as well: that of rank 1, whose handle could be made or not, and that
// of rank 0, whose handshake has been answered.
TEST_F(IbvAddressHandles, QueuePairWaitsForASilentNode) {
  constexpr std::pair<uint64_t, bool> kCases[] = {{2, false}, {2, true}, {4, true}};
  for (const auto& [nth_change, has_handle] : kCases) {
    IbvWorld world(2, patient());
    ::testing::internal::CaptureStderr();
    fake_verbs::hold(true);
    ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
    if (!has_handle) fake_verbs::fail_call(Call::kCreateAh, ETIMEDOUT);
    fake_verbs::fail_call(Call::kModifyQp, ETIMEDOUT, nth_change);
    fake_verbs::hold(false);
    for (uint32_t ms = 0; ms < 4000; ++ms) {
      SimulatedClock::elapse(1);
      world.poll_all();
    }
    EXPECT_EQ(world[0].transport->counts().connected, 0U);
    EXPECT_EQ(world.insist([&] {
      SimulatedClock::elapse(10);
      return world[0].try_send(1, Lane::kRequest, 1, "abcd");
    }),
              Status::kOk)
        << last_error_text();
    EXPECT_TRUE(world.arrived(1, 1));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("Connection timed out (its node does not answer ARP)"));
    EXPECT_EQ(world[0].transport->counts().lost + world[1].transport->counts().lost, 0U);
  }
}

TEST_F(IbvAddressHandles, NodeWithoutARouteIsReportedAtOnce) {
  IbvWorld world(2);
  fake_verbs::fail_call(Call::kCreateAh, ENETUNREACH);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("cannot address rank 1"));
}

// Each rank on a node of its own; each adapter has two address handles.
class IbvFewAddressHandles : public IbvAddressHandles {
 protected:
  static constexpr Rank kRanks = 9;

  void SetUp() override {
    fake_verbs::reset();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      names_.at(rank) = "fake" + std::to_string(rank);
      fake_verbs::add_device({.name = names_.at(rank).c_str(),
                              .gids = {fake_verbs::ipv4_gid(static_cast<uint8_t>(rank + 1))},
                              .max_ah = 2});
    }
  }
  void open(IbvWorld& world) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      IbvTransport::Options options = IbvWorld::single();
      options.ports = names_.at(rank).c_str();
      world.ranks.push_back(std::make_unique<IbvRank>(world.box, rank, kRanks, options));
      ASSERT_EQ(world[rank].opened, Status::kOk) << last_error_text();
    }
  }
  // Sends from rank 0 to the ranks from `first` on, which poll; the others do not.
  static bool reach_from(IbvWorld& world, Rank first) {
    std::array<bool, kRanks> is_sent = {};
    const uint64_t deadline = testing::in_seconds(10);
    for (Rank sent = first; sent < kRanks && now_ns() < deadline;) {
      for (Rank to = first; to < kRanks; ++to) {
        if (is_sent.at(to)) continue;
        const Status status = world[0].try_send(to, Lane::kRequest, 1, "abcd");
        if (status != Status::kOk && status != Status::kNotReady) return false;
        is_sent.at(to) = status == Status::kOk;
        sent += is_sent.at(to) ? 1 : 0;
      }
      world[0].poll();
      for (Rank to = first; to < kRanks; ++to) world[to].poll();
    }
    for (Rank to = first; to < kRanks; ++to) {
      if (!is_sent.at(to)) return false;
    }
    return true;
  }

  std::array<std::string, kRanks> names_;
};

TEST_F(IbvFewAddressHandles, SufficeForManyPeers) {
  IbvWorld world(0);
  open(world);
  for (Rank to = 1; to < kRanks; ++to)
    ASSERT_EQ(world[0].try_send(to, Lane::kRequest, 1, "abcd"), Status::kNotReady)
        << last_error_text();
  EXPECT_EQ(fake_verbs::live().ahs, 2U);
  EXPECT_TRUE(reach_from(world, 1)) << last_error_text();
  EXPECT_TRUE(world.until([] { return fake_verbs::live().ahs == 0; }));
}

TEST_F(IbvFewAddressHandles, AreNotKeptForSilentPeers) {
  IbvWorld world(0);
  open(world);
  for (const Rank silent : {1U, 2U})
    ASSERT_EQ(world[0].try_send(silent, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  EXPECT_TRUE(reach_from(world, 3)) << last_error_text();
}

}  // namespace
}  // namespace hydrant
