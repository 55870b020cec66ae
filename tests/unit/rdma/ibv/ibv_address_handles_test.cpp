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

class IbvAddressHandles : public testing::VerbsTest {
 protected:
  // A silent node is asked every five seconds, and nothing else happens by time for an hour.
  static IbvTransport::Options patient() {
    IbvTransport::Options options = IbvWorld::single();
    options.probe_ns = 0;
    options.handshakes.refused_ns = 5000 * SimulatedClock::kMillisecond;
    options.handshakes.connect_ns = 3'600'000 * SimulatedClock::kMillisecond;
    options.handshakes.clock = SimulatedClock::read;
    return options;
  }
};

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
  IbvWorld world(kPeers + 1, patient());
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

// Rank 1, which has no memory for rank 0, makes a handle for each refusal.
TEST_F(IbvAddressHandles, RefusalsAskASilentNodeOnceInAWhile) {
  IbvWorld world(2, patient());
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  const uint64_t before = fake_verbs::calls(Call::kCreateAh);
  fake_verbs::fail_always(Call::kRegMr, ENOMEM);
  fake_verbs::fail_always(Call::kCreateAh, ETIMEDOUT);
  ::testing::internal::CaptureStderr();
  for (uint32_t ms = 0; ms < 4000; ++ms) {
    SimulatedClock::elapse(1);
    world.poll_all();
  }
  EXPECT_GT(world[0].transport->counts().handshakes, 2U);
  EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), before + 1);
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
  void open(IbvWorld& world, IbvTransport::Options options = IbvWorld::single()) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
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

class IbvSilentNodes : public IbvFewAddressHandles {
 protected:
  static constexpr Rank kSilent = kRanks - 1;

  // A call asks for a second.
  static uint64_t read_with_asks() noexcept {
    return SimulatedClock::read() +
           1000 * SimulatedClock::kMillisecond * fake_verbs::calls(Call::kCreateAh);
  }
  static void contact_all(IbvWorld& world) {
    fake_verbs::fail_always(Call::kCreateAh, ETIMEDOUT);
    for (Rank to = 1; to < kRanks; ++to)
      ASSERT_EQ(world[0].try_send(to, Lane::kRequest, 1, "abcd"), Status::kNotReady)
          << last_error_text();
    ASSERT_EQ(fake_verbs::calls(Call::kCreateAh), kSilent);
  }
};

TEST_F(IbvSilentNodes, PollWaitsForOneAtMost) {
  IbvWorld world(0);
  open(world, patient());
  ::testing::internal::CaptureStderr();
  contact_all(world);
  const uint64_t asked_ns = SimulatedClock::read() + 5000 * SimulatedClock::kMillisecond;
  for (uint32_t poll = 0; poll < 100; ++poll) {
    EXPECT_EQ(world[0].transport->notices().next_poll_ns(), asked_ns);
    world[0].poll();
  }
  EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), kSilent);
  SimulatedClock::elapse(5001);
  for (Rank again = 1; again <= kSilent; ++again) {
    world[0].poll();
    EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), kSilent + again);
  }
  world[0].poll();
  EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), 2 * kSilent);
  (void)::testing::internal::GetCapturedStderr();
}

TEST_F(IbvSilentNodes, LeaveHalfOfTheTime) {
  IbvTransport::Options options = patient();
  options.handshakes.clock = read_with_asks;
  IbvWorld world(0);
  open(world, options);
  ::testing::internal::CaptureStderr();
  contact_all(world);
  const uint64_t since_ns = read_with_asks();
  while (read_with_asks() < since_ns + 100'000 * SimulatedClock::kMillisecond) {
    SimulatedClock::elapse(10);
    world[0].poll();
  }
  EXPECT_GE(fake_verbs::calls(Call::kCreateAh), kSilent + 40);
  EXPECT_LE(fake_verbs::calls(Call::kCreateAh), kSilent + 55);
  (void)::testing::internal::GetCapturedStderr();
}

TEST_F(IbvSilentNodes, OneOfThoseThatContactARankIsAskedInAPoll) {
  IbvWorld world(0);
  open(world);
  for (Rank from = 1; from < kRanks; ++from)
    ASSERT_EQ(world[from].try_send(0, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  fake_verbs::fail_always(Call::kCreateAh, ETIMEDOUT);
  ::testing::internal::CaptureStderr();
  const uint64_t before = fake_verbs::calls(Call::kCreateAh);
  for (uint32_t poll = 0; poll < 16; ++poll) world[0].poll();  // the last one looks for handshakes
  EXPECT_EQ(fake_verbs::calls(Call::kCreateAh), before + 1);
  fake_verbs::fail_always(Call::kCreateAh, 0);
  for (Rank from = 1; from < kRanks; ++from)
    EXPECT_EQ(world.send(from, 0, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_TRUE(world.arrived(0, kSilent));
  (void)::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace hydrant
