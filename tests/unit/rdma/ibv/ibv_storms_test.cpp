// Many first contacts at once, over the fake: each is sent to, those that wait cost polls nothing, and a slow
// launcher delays no answer.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hydrant {
namespace {

using testing::IbvRank;
using testing::IbvWorld;
using testing::SimulatedClock;

class IbvStorms : public testing::VerbsTest {
 protected:
  static constexpr Rank kPeers = 40;
  static_assert(kPeers > ibv::kDatagramSends);

  // Handshakes are not repeated during the test.
  static IbvTransport::Options patient() {
    IbvTransport::Options options = IbvWorld::single();
    options.handshakes.first_ns = 3'600'000'000'000;
    return options;
  }
  static void contact_all(IbvWorld& world) {
    for (Rank peer = 1; peer <= kPeers; ++peer)
      ASSERT_EQ(world[0].try_send(peer, Lane::kRequest, 1, "a"), Status::kNotReady)
          << last_error_text();
  }
};

TEST_F(IbvStorms, FirstContactsThatFindNoRoomLeaveLater) {
  IbvWorld world(kPeers + 1, patient());
  fake_verbs::hold(true);
  contact_all(world);
  EXPECT_EQ(world[0].transport->counts().handshakes, ibv::kDatagramSends);
  fake_verbs::hold(false);
  const uint64_t deadline = testing::in_seconds(10);
  while (world[0].transport->counts().handshakes < kPeers && now_ns() < deadline) world[0].poll();
  EXPECT_EQ(world[0].transport->counts().handshakes, kPeers);
  for (Rank peer = 1; peer <= kPeers; ++peer) {
    for (uint32_t i = 0; i < 16; ++i) world[peer].poll();
    EXPECT_EQ(world[peer].transport->counts().handshakes, 1U) << "rank " << peer << " has answered";
  }
}

// The queue of handshakes stays full, because nothing leaves.
TEST_F(IbvStorms, FullQueueDelaysNoWarning) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes = {.first_ns = 100 * SimulatedClock::kMillisecond,
                        .connect_ns = 50 * SimulatedClock::kMillisecond,
                        .clock = SimulatedClock::read};
  IbvWorld world(ibv::kDatagramSends + 1, options);
  fake_verbs::hold(true);
  for (Rank peer = 1; peer <= ibv::kDatagramSends; ++peer)
    ASSERT_EQ(world[0].try_send(peer, Lane::kRequest, 1, "a"), Status::kNotReady);
  SimulatedClock::elapse(200);
  ::testing::internal::CaptureStderr();
  world[0].poll();
  const std::string log = ::testing::internal::GetCapturedStderr();
  uint32_t warnings = 0;
  for (size_t at = 0; (at = log.find("has not answered", at)) != std::string::npos; ++at)
    ++warnings;
  EXPECT_EQ(warnings, ibv::kDatagramSends);
  fake_verbs::hold(false);
}

// Ranks that compute answer nothing. It shows in how often the polls of a rank that waits for them ask the
// adapter.
TEST_F(IbvStorms, SilentPeersCostPollsNothing) {
  IbvWorld world(kPeers + 1, patient());
  const auto looks = [&] {
    const uint64_t before = fake_verbs::calls(fake_verbs::Call::kPollCq);
    for (uint32_t i = 0; i < 4096; ++i) world[0].poll();
    return fake_verbs::calls(fake_verbs::Call::kPollCq) - before;
  };
  const uint64_t idle = looks();
  fake_verbs::hold(true);
  contact_all(world);
  EXPECT_GT(looks(), idle) << "at first every poll looks for an answer";
  EXPECT_EQ(looks(), idle);
}

// The launcher may take seconds to look an address up. Polls in the look-up stand for those of other threads.
TEST_F(IbvStorms, HandshakesAreAnsweredDuringALookUp) {
  IbvWorld world(3);
  uint32_t look_ups = 0;
  world.box.before_get = [&](Rank rank) {
    if (rank != 1) return;  // rank 2 looks rank 0 up
    ++look_ups;
    EXPECT_EQ(world.send(2, 0, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
    EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  };
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  EXPECT_EQ(look_ups, 1U) << "one at a time";
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
}

TEST_F(IbvStorms, PeerThatCallsDuringItsLookUpIsConnectedOnce) {
  IbvWorld world(2);
  world.box.before_get = [&](Rank rank) {
    if (rank != 1) return;  // rank 1 looks rank 0 up
    EXPECT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  };
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U);
}

}  // namespace
}  // namespace hydrant
