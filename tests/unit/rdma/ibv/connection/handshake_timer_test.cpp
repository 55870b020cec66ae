// The order in which handshakes are repeated, in simulated time: no peer starves, and intervals vary by
// chance.
#include "rdma/ibv/connection/handshake_timer.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace hydrant::ibv {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

// Peers that never answer.
struct SilentPeers {
  explicit SilentPeers(uint32_t count, uint64_t seed = 1) : sent(count) {
    EXPECT_EQ(timer.open(count, seed), Status::kOk);
    for (uint32_t i = 0; i < count; ++i) {
      peers.push_back(std::make_unique<Peer>());
      peers[i]->rank = i;
      peers[i]->connection.handshake_interval_ns = 20 * kMillisecond;
      peers[i]->connection.gives_up_ns = UINT64_MAX;
      timer.add(*peers[i]);
    }
  }
  // Sends what is due, to as many peers as there is room for.
  void pass(uint64_t now, uint32_t room) {
    for (; room != 0 && timer.next_ns() <= now; --room) {
      Peer& peer = timer.first();
      ++sent[peer.rank];
      timer.note_sent(peer, now);
    }
  }
  uint32_t least() const { return *std::min_element(sent.begin(), sent.end()); }

  HandshakeTimer timer;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<uint32_t> sent;  // by rank
};

TEST(HandshakeTimer, WhoHasWaitedLongestIsSentToFirst) {
  SilentPeers silent(1000);
  for (uint32_t pass = 0; pass < 32; ++pass) silent.pass(pass * kMillisecond, 32);
  EXPECT_EQ(silent.least(), 1U) << "32 passes have room for 1024 handshakes";
}

// There is room for half of the handshakes that are due in the long run.
TEST(HandshakeTimer, NoPeerStarvesWhenThereIsTooLittleRoom) {
  SilentPeers silent(1000);
  for (uint32_t pass = 0; pass < 20'000; ++pass) silent.pass(pass * kMillisecond, 1);
  EXPECT_GE(silent.least(), 10U) << "20 each on average";
}

TEST(HandshakeTimer, IntervalsDoubleAndVaryByAQuarter) {
  SilentPeers one(1, 7);
  SilentPeers other(1, 8);
  bool differs = false;
  uint64_t interval = 20 * kMillisecond;
  for (uint32_t i = 0; i < 20; ++i) {
    const uint64_t now = one.timer.next_ns();
    one.timer.note_sent(*one.peers[0], now);
    other.timer.note_sent(*other.peers[0], now);
    EXPECT_GE(one.timer.next_ns(), now + interval / 4 * 3);
    EXPECT_LE(one.timer.next_ns(), now + interval / 4 * 5);
    differs = differs || one.timer.next_ns() != other.timer.next_ns();
    interval = std::min(2 * interval, HandshakeTimer::kMaxIntervalNs);
  }
  EXPECT_TRUE(differs) << "processes with other seeds";
}

TEST(HandshakeTimer, RefusedHandshakeDelaysNoOtherPeer) {
  SilentPeers silent(2);
  Peer& refused = silent.timer.first();
  silent.timer.note_refused(refused, 0);
  EXPECT_EQ(&silent.timer.first(), silent.peers[1 - refused.rank].get());
  EXPECT_EQ(refused.connection.handshake_interval_ns, 20 * kMillisecond) << "not doubled";
}

TEST(HandshakeTimer, FirstIsTheEarliestOfAll) {
  constexpr uint32_t kPeers = 50;
  std::mt19937_64 random(testing::test_seed());
  SilentPeers silent(kPeers);
  for (uint32_t step = 0; step < 20'000; ++step) {
    Peer& peer = *silent.peers[random() % kPeers];
    if (HandshakeTimer::has(peer) && random() % 2 == 0) {
      silent.timer.remove(peer);
    } else {
      peer.connection.next_handshake_ns = random() % 1000;
      peer.connection.gives_up_ns = random() % 4 == 0 ? random() % 1000 : UINT64_MAX;
      if (HandshakeTimer::has(peer)) {
        silent.timer.reorder(peer);
      } else {
        silent.timer.add(peer);
      }
    }
    uint64_t earliest = UINT64_MAX;
    for (const auto& each : silent.peers) {
      if (HandshakeTimer::has(*each))
        earliest =
            std::min({earliest, each->connection.next_handshake_ns, each->connection.gives_up_ns});
    }
    ASSERT_EQ(silent.timer.next_ns(), earliest) << step;
  }
  for (const auto& each : silent.peers) silent.timer.remove(*each);
  EXPECT_EQ(silent.timer.next_ns(), UINT64_MAX);
}

}  // namespace
}  // namespace hydrant::ibv
