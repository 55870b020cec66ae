// How ranks find each other over the fake: handshakes that are lost, repeated, forged or from elsewhere.
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;

class IbvConnection : public testing::VerbsTest {};

// Changes the published endpoint address of a rank.
void change_endpoint(IbvWorld& world, Rank rank,
                     const std::function<void(ibv::EndpointAddress&)>& change) {
  std::string& bytes = world.box.endpoints.at("ibv" + std::to_string(rank));
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(bytes)), &endpoint), Status::kOk);
  change(endpoint);
  ibv::encode_endpoint(endpoint, reinterpret_cast<std::byte*>(bytes.data()));
}

// Another thread may declare a rank dead, and a poll see that, while this one makes the peer.
TEST_F(IbvConnection, PeerThatDiesWhileItIsMadeIsStillToBeDisconnected) {
  ibv::PeerTable peers;
  ASSERT_EQ(peers.open(3), Status::kOk);
  const auto publish = [&](Rank rank) {
    auto peer = std::make_unique<ibv::Peer>();
    peer->rank = rank;
    (void)peers.publish(std::move(peer));
  };
  peers.mark_dead(1);
  EXPECT_TRUE(peers.take_new_dead());
  EXPECT_EQ(peers.find(1), nullptr);
  publish(2);
  EXPECT_FALSE(peers.has_new_dead());
  publish(1);
  EXPECT_TRUE(peers.has_new_dead());
}

// hydrant-info reports these figures before a job runs.
TEST_F(IbvConnection, PredictedMemoryMatchesRegisteredMemory) {
  ibv::Port port;
  ASSERT_EQ(ibv::open_port("", &port), Status::kOk);
  close_ibv_device(port.device);
  IbvTransport::Options options = IbvWorld::single();
  for (const uint32_t eager : {488U, 200U}) {
    options.eager_bytes = eager;
    IbvWorld world(2, options);
    const auto needs = ibv::needs_of(options, port);
    EXPECT_EQ(fake_verbs::registered_bytes(), 2 * needs.bytes_at_start);
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcdefgh"), Status::kOk) << last_error_text();
    ASSERT_TRUE(world.arrived(1, 1));
    EXPECT_EQ(fake_verbs::registered_bytes(), 2 * (needs.bytes_at_start + needs.bytes_per_peer));
  }
}

TEST_F(IbvConnection, MostPeersAreThoseThatTheShortestQueueHasRoomFor) {
  const struct {
    fake_verbs::Device device;
    uint32_t peers;
  } rows[] = {{{}, 32767 / 136},
              {{.max_cqe = 4'194'303}, 32767 / 72},
              {{.max_cqe = 1'048'574, .max_srq_wr = 0}, 1000 - 1},
              {{.max_cqe = 1'048'574, .max_srq_wr = 0, .max_qp = 100'000}, 1'048'574 / 136}};
  for (const auto& row : rows) {
    fake_verbs::reset();
    fake_verbs::add_device(row.device);
    ibv::Port port;
    ASSERT_EQ(ibv::open_port("", &port), Status::kOk);
    close_ibv_device(port.device);
    EXPECT_EQ(ibv::needs_of(IbvWorld::single(), port).max_peers, row.peers);
  }
}

// Under a memlock limit: the peers' share comes first, and some memory is left for pins.
TEST_F(IbvConnection, MemoryReservedForPeersSuffices) {
  constexpr uint64_t kKiB = 1024;
  ibv::Needs needs;
  needs.bytes_at_start = 544 * kKiB;
  needs.bytes_per_peer = 268 * kKiB;
  needs.max_peers = 240;
  EXPECT_EQ(needs.peers_within(64 * kKiB), 0U);
  EXPECT_EQ(needs.peers_within(621 * kKiB), 0U);
  EXPECT_EQ(needs.peers_within(1024 * kKiB), 1U);
  EXPECT_EQ(needs.peers_within(4800 * kKiB), 13U);
  EXPECT_EQ(needs.kept_of(4800 * kKiB, 1), 812 * kKiB);
  EXPECT_EQ(needs.kept_of(4800 * kKiB, 1000), 4200 * kKiB);
  EXPECT_EQ(needs.kept_of(uint64_t{1} << 40, 1000), (544 + 240 * 268) * kKiB);
  for (const uint64_t limit : {1024 * kKiB, 4800 * kKiB, 65536 * kKiB}) {
    const auto peers = static_cast<uint32_t>(needs.peers_within(limit));
    EXPECT_EQ(needs.kept_of(limit, peers), needs.bytes_at_start + peers * needs.bytes_per_peer);
  }
}

TEST_F(IbvConnection, SizesAreThoseOfTheKnobs) {
  {
    const ScopedEnv eager("HYDRANT_AM_EAGER", "301");
    const ScopedEnv credits("HYDRANT_IBV_CREDITS", "100");
    IbvTransport::Options options = ibv::chosen_options();
    EXPECT_EQ(options.eager_bytes, 304u);
    EXPECT_EQ(options.credits, 100u);
    EXPECT_EQ(options.send_depth, 200u);
    options.single_threaded = true;
    IbvWorld world(2, options);
    EXPECT_EQ(world[0].transport->messages(1).inline_bytes(), 304u);
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, std::string(304, 'x')), Status::kOk)
        << last_error_text();
    ASSERT_TRUE(world.arrived(1, 1));
  }
  const IbvTransport::Options options = ibv::chosen_options();
  EXPECT_EQ(options.eager_bytes, IbvTransport::Options().eager_bytes);
  EXPECT_EQ(options.credits, IbvTransport::Options().credits);
  EXPECT_EQ(options.send_depth, IbvTransport::Options().send_depth);
}

TEST_F(IbvConnection, LostHandshakesAreRepeated) {
  for (const uint32_t lost : {1U, 2U, 3U, 5U}) {
    IbvWorld world(2);
    fake_verbs::lose_datagrams(lost);
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcdefgh"), Status::kOk) << last_error_text();
    ASSERT_TRUE(world.arrived(1, 1));
    ASSERT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
    ASSERT_TRUE(world.arrived(0, 1));
  }
}

TEST_F(IbvConnection, EveryLossOfCrossingHandshakesHeals) {
  for (uint32_t lost = 1; lost <= 6; ++lost) {
    IbvWorld world(2);
    (void)world[0].try_send(1, Lane::kRequest, 1, "a");
    (void)world[1].try_send(0, Lane::kRequest, 1, "a");
    fake_verbs::lose_datagrams(lost);
    // Each sends as soon as it may, and never before the other can receive.
    bool is_sent[2] = {};
    ASSERT_TRUE(world.until([&] {
      for (Rank rank = 0; rank < 2; ++rank) {
        if (!is_sent[rank])
          is_sent[rank] = world[rank].try_send(1 - rank, Lane::kRequest, 1, "abcd") == Status::kOk;
        world[rank].poll();
      }
      return is_sent[0] && is_sent[1];
    }));
    ASSERT_TRUE(world.arrived(1, 1) && world.arrived(0, 1));
    EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U) << "one queue pair each";
  }
}

// Rank 0 has received the peer's handshake, and the peer loses those of rank 0: rank 0 must not send yet.
TEST_F(IbvConnection, NothingIsSentBeforeThePeerCanReceive) {
  for (uint32_t lost = 1; lost <= 5; ++lost) {
    IbvWorld world(2);
    ibv::EndpointAddress endpoint;
    ASSERT_EQ(
        ibv::decode_endpoint(std::as_bytes(std::span(world.box.endpoints.at("ibv1"))), &endpoint),
        Status::kOk);
    (void)world[1].try_send(0, Lane::kRequest, 1, "a");
    fake_verbs::lose_datagrams(lost, endpoint.address.datagram_queue);
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcdefgh"), Status::kOk) << last_error_text();
    ASSERT_TRUE(world.arrived(1, 1));
  }
}

TEST_F(IbvConnection, NothingIsSentBeforeThePeerHasAllItsReceiveBuffers) {
  IbvWorld world(2);
  const auto post =
      fake_verbs::live().srqs != 0 ? fake_verbs::Call::kPostSrqRecv : fake_verbs::Call::kPostRecv;
  fake_verbs::fail_always(post, ENOMEM);
  ::testing::internal::CaptureStderr();  // at most one line a second: another test may have had it
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
    for (const Rank rank : {0U, 1U}) world[rank].poll();
  }
  fake_verbs::fail_always(post, 0);
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  ASSERT_TRUE(world.arrived(1, 1));
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(fake_verbs::traffic().not_ready, 0U);
}

TEST_F(IbvConnection, IdleRanksHaveNoQueuePairs) {
  IbvWorld world(4);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 0U);
  world.connect(0, 3);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U);
}

TEST_F(IbvConnection, UnresponsivePeerFailsAfterTimeout) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.connect_ns = 30'000'000;
  options.abandons_silent_ranks = true;
  IbvWorld world(2, options);
  const uint64_t deadline = testing::in_seconds(10);
  Status status = Status::kNotReady;
  while (status == Status::kNotReady && now_ns() < deadline) {
    status = world[0].try_send(1, Lane::kRequest, 1, "abcd");
    world[0].poll();  // rank 1 does not poll
  }
  EXPECT_EQ(status, Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("rank 1 is gone"), HasSubstr("not answered")));
  EXPECT_EQ(world[0].transport->counts().lost, 1U);
}

// The peer may compute, or be stopped in a debugger.
TEST_F(IbvConnection, SilentRankIsRetriedWithAWarning) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.connect_ns = 20'000'000;
  IbvWorld world(2, options);
  ::testing::internal::CaptureStderr();
  bool is_over = false;
  for (const uint64_t until = now_ns() + 5 * options.handshakes.connect_ns; !is_over;) {
    is_over = now_ns() >= until;  // one more check then
    ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
    for (int i = 0; i < 16; ++i) world[0].poll();  // rank 1 does not poll
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 1 at"), HasSubstr("has not answered for"),
                    HasSubstr("handshakes continue")));
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
  EXPECT_TRUE(world.arrived(1, 1));
}

TEST_F(IbvConnection, RankWithoutAnAddressIsBroken) {
  IbvWorld world(2);
  world.box.endpoints.erase("ibv1");
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("no verbs endpoint address"));
  world.box.get_fails = Status::kBroken;
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("launcher"), HasSubstr("rank 1")));
}

TEST_F(IbvConnection, LauncherThatIsLateIsAskedAgain) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.clock = testing::SimulatedClock::read;
  IbvWorld world(2, options);
  world.box.get_fails = Status::kNotReady;
  world.box.before_get = [](Rank) { testing::SimulatedClock::elapse(10'000); };
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("launcher"), HasSubstr("rank 1")));
  world.box.get_fails = Status::kOk;
  world.box.before_get = nullptr;
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
}

TEST_F(IbvConnection, ForeignAddressesAreRejectedWithAnError) {
  IbvWorld world(2);
  std::string& bytes = world.box.endpoints.at("ibv1");
  const std::string good = bytes;
  bytes[0] = 'x';
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("magic"));
  bytes = good + "more";
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  bytes = good;
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk)
      << "the connection may be retried";
}

TEST_F(IbvConnection, OtherSettingsAreRefusedWithAText) {
  IbvWorld world(2);
  change_endpoint(
      world, 1, [](ibv::EndpointAddress& endpoint) { endpoint.connection_parameters.credits = 7; });
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(),
              HasSubstr("has other settings than this one: 7 credits, not 32 (HYDRANT_AM_EAGER"));
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 0U);
}

TEST_F(IbvConnection, OtherLinksAreRefusedWithAText) {
  IbvWorld world(2);
  change_endpoint(world, 1,
                  [](ibv::EndpointAddress& endpoint) { endpoint.address.is_ethernet ^= 1; });
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("InfiniBand"));
}

TEST_F(IbvConnection, StrayDatagramsAreCountedAndIgnored) {
  IbvWorld world(2);
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(
      ibv::decode_endpoint(std::as_bytes(std::span(world.box.endpoints.at("ibv1"))), &endpoint),
      Status::kOk);
  const uint32_t queue = endpoint.address.datagram_queue;
  fake_verbs::send_stray(queue, "nonsense", 8);
  std::byte bytes[ibv::kHandshakeBytes];
  ibv::Handshake handshake;
  handshake.endpoint = endpoint;
  handshake.from = 0;
  handshake.to = 1;
  handshake.index_at_peer = 1;
  handshake.to_nonce = endpoint.address.nonce + 1;  // of another job
  ibv::encode_handshake(handshake, bytes);
  fake_verbs::send_stray(queue, bytes, sizeof bytes);
  handshake.to_nonce = endpoint.address.nonce;
  handshake.from = 2;  // no such rank
  ibv::encode_handshake(handshake, bytes);
  fake_verbs::send_stray(queue, bytes, sizeof bytes);
  handshake.from = 1;  // itself
  ibv::encode_handshake(handshake, bytes);
  fake_verbs::send_stray(queue, bytes, sizeof bytes);
  ASSERT_TRUE(world.until([&] { return world[1].transport->counts().strangers == 4; }));
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 0U);
  world.connect(0, 1);
}

TEST_F(IbvConnection, HandshakeOfAProcessThatWasReplacedIsIgnored) {
  IbvWorld world(2);
  world.connect(0, 1);
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(
      ibv::decode_endpoint(std::as_bytes(std::span(world.box.endpoints.at("ibv1"))), &endpoint),
      Status::kOk);
  ibv::Handshake handshake;
  handshake.endpoint = endpoint;
  handshake.endpoint.address.nonce = 99;
  handshake.to_nonce = endpoint.address.nonce;
  handshake.to = handshake.index_at_peer = 1;
  std::byte bytes[ibv::kHandshakeBytes];
  ibv::encode_handshake(handshake, bytes);
  fake_verbs::send_stray(endpoint.address.datagram_queue, bytes, sizeof bytes);
  ASSERT_TRUE(world.until([&] { return world[1].transport->counts().strangers == 1; }));
  EXPECT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kOk);
}

TEST_F(IbvConnection, ManyPeersMakeTheCompletionQueueGrow) {
  IbvWorld world(12);
  const uint64_t at_start = fake_verbs::calls(Call::kResizeCq);
  for (Rank rank = 1; rank < 12; ++rank) world.connect(0, rank);
  EXPECT_EQ(fake_verbs::calls(Call::kResizeCq) > at_start,
            fake_verbs::has_call(fake_verbs::adapter(), Call::kResizeCq));
  // All queues at once: flushed requests as well as arrivals must fit.
  for (Rank rank = 1; rank < 12; ++rank) {
    for (uint32_t i = 0; i < 40; ++i) {
      (void)world[rank].try_send(0, Lane::kRequest, 1, "abcdefgh");
      (void)world[0].try_send(rank, Lane::kRequest, 1, "abcdefgh");
    }
  }
}

TEST_F(IbvConnection, AdapterThatCannotResizeACompletionQueueConnectsToAllPeers) {
  fake_verbs::fail_always(Call::kResizeCq, EOPNOTSUPP);
  IbvWorld world(21);
  for (Rank rank = 1; rank < 21; ++rank) world.connect(0, rank);
  EXPECT_EQ(world[0].transport->counts().connected, 20U);
}

TEST_F(IbvConnection, AdapterThatCannotResizeACompletionQueueSaysHowManyPeersFit) {
  fake_verbs::reset();
  fake_verbs::add_device({.max_cqe = 10 * 136});
  fake_verbs::fail_always(Call::kResizeCq, EOPNOTSUPP);
  IbvWorld world(12);
  for (Rank rank = 1; rank <= 10; ++rank) world.connect(0, rank);
  EXPECT_EQ(world.send(0, 11, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("at most 1360 entries, 10 peers have them all"));
}

TEST_F(IbvConnection, DeviceLimitsAreReported) {
  testing::CardBox box;
  fake_verbs::reset();
  fake_verbs::add_device({.max_cqe = 100});
  {
    const IbvRank rank(box, 0, 2, IbvWorld::single());
    EXPECT_EQ(rank.opened, Status::kResource);
    EXPECT_THAT(last_error_text(), AllOf(HasSubstr("at most 100"), HasSubstr("needs 136")));
  }
  fake_verbs::reset();
  fake_verbs::add_device({.max_srq_wr = 70});
  {
    const IbvRank rank(box, 0, 2, IbvWorld::single());
    EXPECT_EQ(rank.opened, Status::kResource);
    EXPECT_THAT(last_error_text(), AllOf(HasSubstr("70"), HasSubstr("fewer credits")));
  }
  fake_verbs::reset();
  fake_verbs::add_device({.max_srq_wr = 100});
  {
    IbvWorld world(3);
    world.connect(0, 1);
    EXPECT_EQ(world.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kResource);
    EXPECT_THAT(last_error_text(), HasSubstr("1 peers have them all"));
    EXPECT_THAT(last_error_text(), EndsWith("(HYDRANT_IBV_CREDITS); first contact with rank 2"));
  }
  fake_verbs::reset();
  fake_verbs::add_device({.max_cqe = 160});
  {
    IbvWorld world(3);
    world.connect(0, 1);
    EXPECT_EQ(world.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kResource);
    EXPECT_THAT(last_error_text(), HasSubstr("at most 160 entries"));
  }
}

TEST_F(IbvConnection, SmallerDeviceLimitsAreAccepted) {
  fake_verbs::reset();
  fake_verbs::add_device({.max_qp_wr = 32, .max_inline = 0});
  IbvWorld world(2);
  EXPECT_EQ(world[0].transport->pinned()->keyless_bytes(), 0U);
  world.connect(0, 1);
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, std::string(i, 'x')), Status::kOk);
  }
  ASSERT_TRUE(world.arrived(1, 200));
  EXPECT_EQ(fake_verbs::traffic().inline_sends, 0U);
}

TEST_F(IbvConnection, InlineSizeIsWhatTheDeviceAcceptsInStepsOfFourBytes) {
  const struct {
    uint32_t accepted;
    uint32_t used;
  } devices[] = {{3, 0}, {48, 48}, {96, 96}, {101, 100}, {255, 252}, {256, 256}, {512, 256}};
  for (const auto& device : devices) {
    fake_verbs::reset();
    fake_verbs::add_device({.max_inline = device.accepted});
    IbvWorld world(2);
    EXPECT_EQ(world[0].transport->pinned()->keyless_bytes(), device.used) << device.accepted;
  }
}

TEST_F(IbvConnection, InlineSizeIsWhatTheQueuePairHasWhereADriverRefusesNothing) {
  fake_verbs::reset();
  fake_verbs::add_device({.max_inline = 32, .cuts_inline = true});
  IbvWorld world(2);
  EXPECT_EQ(world[0].transport->pinned()->keyless_bytes(), 32U);
  world.connect(0, 1);
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, std::string(i, 'x')), Status::kOk);
  }
  ASSERT_TRUE(world.arrived(1, 100));
}

TEST_F(IbvConnection, InfiniBandUsesLids) {
  fake_verbs::reset();
  fake_verbs::add_device({.ethernet = false, .lid = 5, .gids = {}});
  IbvWorld world(2);
  world.connect(0, 1);
}

TEST_F(IbvConnection, MostSendsAreNeitherSignalledNorFetched) {
  IbvWorld world(2);
  world.connect(0, 1);
  const fake_verbs::Traffic before = fake_verbs::traffic();
  for (uint32_t i = 0; i < 160; ++i) {
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  }
  ASSERT_TRUE(world.arrived(1, 160));
  const fake_verbs::Traffic after = fake_verbs::traffic();
  EXPECT_GE(after.inline_sends - before.inline_sends, 160U);
  EXPECT_LE(after.signalled - before.signalled, (after.sends - before.sends) / 10);
}

TEST_F(IbvConnection, BadOptionsAreBadArguments) {
  testing::CardBox box;
  const auto refused = [&](auto change) {
    IbvTransport::Options options;
    change(options);
    return IbvRank(box, 0, 2, options).opened == Status::kBadArg;
  };
  EXPECT_TRUE(refused([](auto& o) { o.eager_bytes = 64; }));
  EXPECT_TRUE(refused([](auto& o) { o.eager_bytes = 129; }));
  EXPECT_TRUE(refused([](auto& o) { o.cell_bytes = 100; }));
  EXPECT_TRUE(refused([](auto& o) { o.credits = 2; }));
  EXPECT_TRUE(refused([](auto& o) { o.receive_slots = 1; }));
  EXPECT_TRUE(refused([](auto& o) { o.send_depth = 8; }));
  EXPECT_TRUE(refused([](auto& o) { o.operations = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.cells = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.ports = ":"; }));
}

}  // namespace
}  // namespace hydrant
