// Groups that join each other, over the fake: the ranks' numbers, handshakes that cross, come early, or are
// forged; peers of the other group that fail or are disconnected.
#include "tests/unit/rdma/ibv/ibv_meeting.hpp"
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace hydrant {
namespace {

using ::testing::AllOf;
using testing::Blob;
using ::testing::ContainsRegex;
using testing::group_address_of;
using testing::group_addresses_of;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::join;
using testing::Meeting;
using testing::PinnedMemory;
using testing::read_endpoint;
using testing::Told;

class IbvGroups : public testing::VerbsTest {};

TEST_F(IbvGroups, EveryPairExchangesMessagesUnderItsOwnNumbers) {
  for (const auto& [first, second] : {std::pair<Rank, Rank>{2, 2}, {3, 1}, {1, 4}, {1, 1}}) {
    Meeting meeting(first, second);
    meeting.join_all();
    EXPECT_EQ(fake_verbs::connected_pairs().size(), 0U) << "joining alone connects no ranks";
    all_talk_to_all(meeting);
    const size_t all = first + second;
    EXPECT_EQ(fake_verbs::connected_pairs().size(), all * (all - 1)) << "one queue pair each";
  }
}

TEST_F(IbvGroups, EveryLossOfCrossingHandshakesHeals) {
  for (uint32_t lost = 0; lost <= 6; ++lost) {
    Meeting meeting(2, 2);
    meeting.join_all();
    IbvRank& here = meeting.a[1];
    IbvRank& there = meeting.b[1];
    (void)here.try_send(meeting.from_a(1), Lane::kRequest, 1, "a");
    (void)there.try_send(meeting.from_b(1), Lane::kRequest, 1, "a");
    fake_verbs::lose_datagrams(lost);
    bool is_sent[2] = {};
    ASSERT_TRUE(meeting.until([&] {
      is_sent[0] |= !is_sent[0] &&
                    here.try_send(meeting.from_a(1), Lane::kRequest, 1, "from a") == Status::kOk;
      is_sent[1] |= !is_sent[1] &&
                    there.try_send(meeting.from_b(1), Lane::kRequest, 1, "from b") == Status::kOk;
      return is_sent[0] && is_sent[1];
    })) << lost;
    ASSERT_TRUE(meeting.until([&] { return here.inbox.count == 1 && there.inbox.count == 1; }));
    EXPECT_EQ(here.inbox.letters[0].from, 3U);
    EXPECT_EQ(here.inbox.letters[0].head, "from b");
    EXPECT_EQ(there.inbox.letters[0].from, 2U) << "the last of a is the first that b has joined";
    EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U) << "one queue pair each";
  }
}

TEST_F(IbvGroups, PutsAndGetsGoByKeys) {
  Meeting meeting(2, 2);
  meeting.join_all();
  PinnedMemory here(*meeting.a[1].transport, Access::kRemoteRead, 8192);
  PinnedMemory there(*meeting.b[0].transport, Access::kRemoteWrite, 8192);
  for (size_t i = 0; i < 8192; ++i) here.data.get()[i] = static_cast<std::byte>(i * 7);
  const auto finish = [&](const std::function<Status(Told*)>& begin) {
    Told told;
    const Status begun = meeting.insist([&] { return begin(&told); });
    if (begun != Status::kOk) return begun;
    EXPECT_TRUE(meeting.until([&] { return told.times != 0; }));
    return told.status;
  };
  ASSERT_EQ(finish([&](Told* told) {
              return meeting.a[1].transport->pinned()->put(meeting.from_a(0), there.for_peer(),
                                                           here.local(), 8192, told);
            }),
            Status::kOk)
      << last_error_text();
  EXPECT_EQ(std::memcmp(here.data.get(), there.data.get(), 8192), 0);
  std::memset(there.data.get(), 0, 8192);
  ASSERT_EQ(finish([&](Told* told) {
              return meeting.b[0].transport->pinned()->get(meeting.from_b(1), here.for_peer(),
                                                           there.local(), 8192, told);
            }),
            Status::kOk)
      << last_error_text();
  EXPECT_EQ(std::memcmp(here.data.get(), there.data.get(), 8192), 0);
}

// A rank that has not joined ignores handshakes; the initiator repeats them and is connected after the join.
TEST_F(IbvGroups, HandshakeBeforeTheJoinIsRetried) {
  Meeting meeting(2, 2);
  const std::vector<Blob> of_a = group_addresses_of(meeting.a);
  std::vector<Rank> numbers;
  ASSERT_EQ(join(meeting.a[1], group_addresses_of(meeting.b), &numbers), Status::kOk);
  IbvRank& here = meeting.a[1];
  IbvRank& there = meeting.b[0];
  EXPECT_EQ(here.try_send(2, Lane::kRequest, 1, "early"), Status::kNotReady);
  ASSERT_TRUE(meeting.until([&] { return there.transport->counts().early >= 3; }));
  EXPECT_EQ(there.transport->counts().strangers, there.transport->counts().early);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 1U) << "of the initiator";
  EXPECT_EQ(here.try_send(2, Lane::kRequest, 1, "early"), Status::kNotReady);
  meeting.b.connect(0, 1);  // its own peers do not mind
  // Joining another rank of that group does not accept the initiator's handshakes yet.
  ASSERT_EQ(join(there, {of_a[0]}, &numbers), Status::kOk);
  const uint64_t early = there.transport->counts().early;
  ASSERT_TRUE(meeting.until([&] { return there.transport->counts().early > early; }));
  ASSERT_EQ(join(there, {of_a[1]}, &numbers), Status::kOk);
  ASSERT_EQ(meeting.send(here, 2, Lane::kRequest, "early"), Status::kOk) << last_error_text();
  ASSERT_TRUE(meeting.until([&] { return there.inbox.count == 1; }));
  EXPECT_EQ(there.inbox.letters[0].from, 3U);
  EXPECT_EQ(there.inbox.letters[0].head, "early");
}

TEST_F(IbvGroups, NonJoiningPeerFailsAfterTimeout) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.connect_ns = 30'000'000;
  Meeting meeting(1, 1, options);
  std::vector<Rank> numbers;
  ASSERT_EQ(join(meeting.a[0], group_addresses_of(meeting.b), &numbers), Status::kOk);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(meeting.send(meeting.a[0], 1, Lane::kRequest, "a"), Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("peer 1 (rank 0 of group"), HasSubstr("is gone"),
                                       HasSubstr("not answered")));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("peer 1 (rank 0 of group"));
}

TEST_F(IbvGroups, ForgedHandshakesAreIgnored) {
  Meeting meeting(2, 2);
  const ibv::GroupAddress to = read_endpoint(group_address_of(meeting.a[1]));
  const ibv::GroupAddress from = read_endpoint(group_address_of(meeting.b[1]));
  meeting.join_all();
  const IbvTransport& here = *meeting.a[1].transport;
  ibv::Handshake handshake;
  handshake.endpoint = from.endpoint;
  handshake.from = 1;
  handshake.to = 1;
  handshake.to_nonce = to.endpoint.address.nonce;
  uint64_t strangers = 0;
  const auto ignored = [&](bool is_early = false) {
    std::byte bytes[ibv::kHandshakeBytes];
    ibv::encode_handshake(handshake, bytes);
    fake_verbs::send_stray(to.endpoint.address.datagram_queue, bytes, sizeof bytes);
    ++strangers;
    const uint64_t early = here.counts().early + (is_early ? 1 : 0);
    return meeting.until([&] { return here.counts().strangers == strangers; }) &&
           here.counts().early == early && fake_verbs::connected_pairs().empty();
  };
  ++handshake.endpoint.address.nonce;  // another process
  EXPECT_TRUE(ignored());
  handshake.endpoint = from.endpoint;
  handshake.endpoint.group = 0;  // as of this group, by the other's numbers
  handshake.from = 0;
  handshake.index_at_peer = 2;
  EXPECT_TRUE(ignored());
  handshake.endpoint.group = to.endpoint.group;  // as of this group, by its name
  handshake.index_at_peer = 1;
  EXPECT_TRUE(ignored(true));
  handshake.endpoint.group = from.endpoint.group;  // a rank that is not joined
  handshake.from = 2;
  EXPECT_TRUE(ignored(true));
  handshake.from = 1;
  handshake.to = 0;
  EXPECT_TRUE(ignored());
  handshake.to = 1;
  ++handshake.to_nonce;
  EXPECT_TRUE(ignored());
  all_talk_to_all(meeting);
}

Rank lost_rank = kNoRank;
std::string lost_text;
void hear_loss(Rank rank, const char* text) noexcept {
  lost_rank = rank;
  lost_text = text;
}

TEST_F(IbvGroups, DeadProcessOfTheOtherGroupFailsAlone) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 5'000'000;
  Meeting meeting(2, 2, options);
  meeting.join_all();
  all_talk_to_all(meeting);
  IbvRank& here = meeting.a[0];
  here.transport->set_peer_failed_callback(&hear_loss);
  lost_rank = kNoRank;
  ::testing::internal::CaptureStderr();
  meeting.b.ranks[1].reset();
  // Neither side sends: a probe detects the failure.
  ASSERT_TRUE(meeting.until([&] { return here.transport->counts().lost == 1; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("peer 3 (rank 1 of group"));
  EXPECT_EQ(lost_rank, 3U);
  EXPECT_THAT(lost_text, HasSubstr("peer 3 (rank 1 of group"));
  EXPECT_EQ(here.try_send(3, Lane::kRequest, 1, "a"), Status::kBroken);
  for (const Rank peer : {1U, 2U})
    EXPECT_EQ(meeting.send(here, peer, Lane::kRequest, "goes on"), Status::kOk);
  ASSERT_TRUE(meeting.until([&] {
    return meeting.a[1].inbox.letters.back().head == "goes on" &&
           meeting.b[0].inbox.letters.back().head == "goes on";
  }));
}

TEST_F(IbvGroups, RejectedRequestNamesItsPeer) {
  Meeting meeting(2, 2);
  meeting.join_all();
  IbvRank& here = meeting.a[0];
  ASSERT_EQ(meeting.send(here, 3, Lane::kRequest, "a"), Status::kOk) << last_error_text();
  ::testing::internal::CaptureStderr();
  fake_verbs::fail_call(fake_verbs::Call::kPostSend, ENOMEM);
  (void)here.try_send(3, Lane::kRequest, 1, "a");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("requests to peer 3 (rank 1 of group"));
}

TEST_F(IbvGroups, ConnectErrorNamesThePeer) {
  Meeting meeting(2, 2);
  meeting.join_all();
  const auto is_named = HasSubstr("peer 3 (rank 1 of group");
  IbvRank& here = meeting.a[0];
  fake_verbs::fail_call(fake_verbs::Call::kCreateQp, ENOMEM);
  EXPECT_EQ(here.try_send(3, Lane::kRequest, 1, "a"), Status::kResource);
  EXPECT_THAT(last_error_text(), is_named);
  fake_verbs::fail_call(fake_verbs::Call::kCreateAh, ENETUNREACH);
  EXPECT_EQ(here.try_send(3, Lane::kRequest, 1, "a"), Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("cannot address peer 3 (rank 1"), is_named));
  // The handshake's target cannot create a queue pair either, and refuses; a later handshake succeeds.
  EXPECT_EQ(here.try_send(3, Lane::kRequest, 1, "a"), Status::kNotReady);
  fake_verbs::fail_call(fake_verbs::Call::kCreateQp, ENOMEM);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(meeting.until([&] {
    return here.try_send(3, Lane::kRequest, 1, "a") == Status::kOk;
  })) << last_error_text();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("peer [23] \\(rank 0 of group [0-9a-f]*\\) cannot be connected"));
}

TEST_F(IbvGroups, DisconnectedMemberDeliversNothing) {
  Meeting meeting(2, 2);
  IbvRank& here = meeting.a[0];
  here.transport->disconnect(2);  // not joined yet: no effect
  meeting.join_all();
  ASSERT_EQ(meeting.send(here, 2, Lane::kRequest, "a"), Status::kOk) << last_error_text();
  ASSERT_TRUE(meeting.until([&] { return meeting.b[0].inbox.count == 1; }));
  here.transport->disconnect(2);
  here.transport->disconnect(3);  // before the first contact
  here.poll();
  for (const Rank peer : {2U, 3U}) {
    EXPECT_EQ(here.try_send(peer, Lane::kRequest, 1, "a"), Status::kBroken);
    EXPECT_THAT(last_error_text(), HasSubstr("declared it dead"));
  }
  (void)meeting.b[1].try_send(meeting.from_b(0), Lane::kRequest, 1, "a");
  for (int i = 0; i < 100; ++i) meeting.poll_all();
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 3U) << "three that have begun, none of a's to b1";
  std::vector<Rank> numbers;
  ASSERT_EQ(join(here, group_addresses_of(meeting.b), &numbers), Status::kOk);
  EXPECT_EQ(numbers, (std::vector<Rank>{2, 3})) << "the numbers stay theirs";
  EXPECT_EQ(meeting.send(here, 1, Lane::kRequest, "a"), Status::kOk);
}

class IbvGroupRails : public testing::RailTest {};

TEST_F(IbvGroupRails, AreThoseThatBothHave) {
  add_devices(2);
  IbvTransport::Options one = testing::rail_options();
  one.ports = "fake0";
  for (const bool both : {true, false}) {
    Meeting meeting(1, 1, testing::rail_options());
    if (!both) {
      meeting.b.ranks[0] = std::make_unique<IbvRank>(meeting.b.box, 0, 1, testing::joining(1, one));
    }
    EXPECT_EQ(group_address_of(meeting.b[0]).size(), both ? 112U : 88U);
    meeting.join_all();
    all_talk_to_all(meeting);
    const uint32_t rails = both ? 2 : 1;
    EXPECT_TRUE(meeting.until([&] { return meeting.a[0].transport->rails_with(1) == rails; }));
    EXPECT_TRUE(meeting.until([&] { return meeting.b[0].transport->rails_with(1) == rails; }));
  }
}

// Each process in a thread of its own, all started at once; another thread of each group queries its endpoint
// address and joins again meanwhile.
TEST_F(IbvGroups, ThreadsJoinAndSendConcurrently) {
  constexpr uint64_t kCount = 100;
  IbvTransport::Options options = IbvWorld::single();
  options.single_threaded = false;
  Meeting meeting(2, 2, options);
  const std::vector<Blob> endpoints[2] = {group_addresses_of(meeting.a),
                                          group_addresses_of(meeting.b)};
  const uint64_t deadline = testing::in_seconds(60);
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> failed{0};
  std::vector<std::thread> threads;
  for (Rank i = 0; i < 4; ++i) {
    IbvRank& here = *(i < 2 ? meeting.a : meeting.b).ranks[i % 2];
    const std::vector<Blob>& theirs = endpoints[i < 2 ? 1 : 0];
    threads.emplace_back([&here, &theirs, &done, &failed, deadline] {
      std::vector<Rank> numbers;
      if (join(here, theirs, &numbers) != Status::kOk) ++failed;
      uint64_t sent = 0;
      while ((sent < 3 * kCount || here.inbox.count < 3 * kCount) && now_ns() < deadline) {
        const Rank self = here.bootstrap.topology().rank;
        const Rank to = sent % 3 == 0 ? 1 - self : 1 + static_cast<Rank>(sent % 3);
        if (sent < 3 * kCount && here.try_send(to, Lane::kRequest, 1, "12345678") == Status::kOk)
          ++sent;
        here.poll();
      }
      ++done;
      while (done.load() < 4 && now_ns() < deadline) here.poll();
    });
  }
  for (Rank i = 0; i < 2; ++i) {
    IbvRank& here = *(i == 0 ? meeting.a : meeting.b).ranks[0];
    const std::vector<Blob>& theirs = endpoints[1 - i];
    threads.emplace_back([&here, &theirs, &done, &failed, deadline] {
      while (done.load() < 4 && now_ns() < deadline) {
        std::vector<Rank> numbers;
        if (join(here, theirs, &numbers) != Status::kOk || numbers[1] != 3) ++failed;
        Blob endpoint(IbvTransport::kMaxGroupAddressBytes);
        size_t bytes = 0;
        if (here.transport->group_address(endpoint, &bytes) != Status::kOk) ++failed;
        sched_yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(now_ns(), deadline);
  EXPECT_EQ(failed.load(), 0U);
  for (IbvWorld* world : {&meeting.a, &meeting.b}) {
    for (auto& rank : world->ranks) EXPECT_EQ(rank->inbox.count, 3 * kCount);
  }
}

}  // namespace
}  // namespace hydrant
