// Many first contacts at once, over the fake: each is sent to, those that wait cost polls nothing, and a slow
// launcher delays no answer.
#include "rdma/ibv/connection/datagram_queue.hpp"
#include "rdma/ibv/connection/handshake_timer.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
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
  const auto warnings_after = [&](uint64_t ms) {
    SimulatedClock::elapse(ms);
    ::testing::internal::CaptureStderr();
    world[0].poll();
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string first = warnings_after(200);
  EXPECT_THAT(first, HasSubstr("has not answered"));
  EXPECT_EQ(first.find('\n'), first.size() - 1) << "one line a second";
  EXPECT_THAT(warnings_after(1'001),
              HasSubstr("(" + std::to_string(ibv::kDatagramSends - 1) + " more not shown)"));
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

// ---- a rank that many processes contact ----

// Processes that contact rank 0 at once, and repeat their handshakes as a transport does. What rank 0 sends
// to them arrives in one queue.
class SimulatedProcesses {
 public:
  SimulatedProcesses(const ibv::EndpointAddress& target, uint32_t count) {
    EXPECT_EQ(ibv::open_port("", &port_), Status::kOk);
    EXPECT_EQ(arrivals_.open(port_, nullptr, 0), Status::kOk);
    target_queue_ = target.address.datagram_queue;
    for (uint32_t i = 0; i < count; ++i) {
      processes_.push_back(std::make_unique<Process>());
      Process& process = *processes_.back();
      process.handshake.endpoint = target;  // the same port and settings
      process.handshake.endpoint.address.nonce = i + 1;
      process.handshake.endpoint.address.datagram_queue = arrivals_.number();
      process.handshake.to_nonce = target.address.nonce;
      process.handshake.from = i + 1;
      process.handshake.queue_pair = 0x100000 + i;
      process.contact.connection = {.next_handshake_ns = options_.clock(),
                                    .handshake_interval_ns = options_.first_ns,
                                    .gives_up_ns = UINT64_MAX};
      EXPECT_EQ(process.timer.open(1, 0x9e3779b97f4a7c15 * (i + 1)), Status::kOk);
      process.timer.add(process.contact);
    }
  }
  ~SimulatedProcesses() {
    arrivals_.close();
    addresses_.close();
    close_ibv_device(port_.device);
  }
  SimulatedProcesses(const SimulatedProcesses&) = delete;
  SimulatedProcesses& operator=(const SimulatedProcesses&) = delete;

  // Sends the handshakes that are due.
  void repeat() {
    const uint64_t now = options_.clock();
    for (const auto& process : processes_) {
      if (process->timer.next_ns() > now) continue;
      send(process->handshake);
      process->timer.note_sent(process->contact, now);
    }
  }
  // Handles the answers that have arrived.
  void take_answers() {
    while (arrivals_.poll([this](const ibv::Handshake* answer) {
      if (answer != nullptr && answer->can_receive) take(*answer);
    }) != 0) {
    }
  }
  uint32_t connected() const { return connected_; }

 private:
  struct Process {
    ibv::Handshake handshake;
    ibv::HandshakeTimer timer;
    ibv::Peer contact;  // rank 0
  };

  void take(const ibv::Handshake& answer) {
    Process& process = *processes_.at(answer.to - 1);
    if (!process.handshake.open) ++connected_;
    process.handshake.can_receive = process.handshake.open = true;
    process.timer.remove(process.contact);
    if (!answer.open) send(process.handshake);
  }
  void send(const ibv::Handshake& handshake) const {
    std::byte bytes[ibv::kHandshakeBytes];
    ibv::encode_handshake(handshake, bytes);
    fake_verbs::send_stray(target_queue_, bytes, sizeof bytes);
  }

  const ibv::HandshakeOptions options_ = {.clock = SimulatedClock::read};
  ibv::Port port_;
  ibv::AddressHandles addresses_{options_, port_};
  ibv::Counter errors_;
  ibv::DatagramQueue arrivals_{options_, addresses_, errors_};
  uint32_t target_queue_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  uint32_t connected_ = 0;
};

TEST_F(IbvStorms, ThousandFirstContactsTakeLessThanASecondIfPolledEveryTenMilliseconds) {
  constexpr uint32_t kProcesses = 1000;
  fake_verbs::reset();
  fake_verbs::add_device({.max_mr = 10'000, .max_qp = 10'000});
  IbvTransport::Options options = IbvWorld::single();
  options.eager_bytes = MessageChannel::kMaxHeadBytes;
  options.credits = 4;
  options.cell_bytes = 64;
  options.cells = 1;
  options.receive_slots = 2;
  options.send_depth = 16;
  options.probe_ns = 0;
  options.handshakes = {.clock = SimulatedClock::read};
  testing::CardBox box;
  IbvRank target(box, 0, kProcesses + 1, options);
  ASSERT_EQ(target.opened, Status::kOk) << last_error_text();
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(box.endpoints.at("ibv0"))), &endpoint),
            Status::kOk);
  SimulatedProcesses processes(endpoint, kProcesses);
  for (uint32_t ms = 0; target.transport->counts().connected < kProcesses; ++ms) {
    ASSERT_LT(ms, 1000U) << processes.connected() << " processes are connected, and rank 0 with "
                         << target.transport->counts().connected;
    processes.repeat();
    if (ms % 10 == 0) {
      target.poll();
      processes.take_answers();
    }
    SimulatedClock::elapse(1);
  }
  EXPECT_EQ(processes.connected(), kProcesses);
}

}  // namespace
}  // namespace hydrant
