// Failures over the fake of verbs: every call, at every count; peers that die, are disconnected, or send
// malformed messages.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <unistd.h>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::PinnedMemory;
using testing::Told;

class IbvFailures : public testing::VerbsTest {
 protected:
  // The time that a rank waits for a reply of a rank that cannot reply.
  static constexpr uint64_t kShort = 200'000'000;
  // Each step once: start, connection, messages, cells, a put, the end. Returns the first error.
  static Status do_everything(uint64_t connect_ns = IbvTransport::Options().handshakes.connect_ns) {
    testing::CardBox box;
    std::vector<std::unique_ptr<IbvRank>> ranks;
    for (Rank rank = 0; rank < 2; ++rank) {
      IbvTransport::Options options = IbvWorld::single();
      options.handshakes.connect_ns = connect_ns;
      options.abandons_silent_ranks = true;
      options.probe_ns = 10'000'000;
      ranks.push_back(std::make_unique<IbvRank>(box, rank, 2, options));
      if (ranks.back()->opened != Status::kOk) return ranks.back()->opened;
    }
    const uint64_t deadline = testing::in_seconds(10);
    const auto insist = [&](auto attempt) {
      Status status = Status::kNotReady;
      while ((status = attempt()) == Status::kNotReady && now_ns() < deadline) {
        for (auto& rank : ranks) rank->poll();
      }
      return status;
    };
    for (uint32_t i = 0; i < 40; ++i) {
      Status status =
          insist([&] { return ranks[0]->try_send(1, Lane::kRequest, 1, std::string(400, 'x')); });
      if (status == Status::kOk && i % 4 == 0)
        status =
            insist([&] { return ranks[1]->try_send_cell(0, Lane::kReply, 1, "head", "cell"); });
      if (status != Status::kOk) return status;
    }
    const auto registrar = ranks[0]->transport->pinned()->make_registrar();
    if (registrar == nullptr) return Status::kUnsupported;
    std::string source(8, 'a');
    Told told;
    std::byte key[64] = {};
    // A write of no bytes needs no memory.
    const PinnedOperations::Pinned nowhere{0x1000, key};
    const Status begun =
        insist([&] { return ranks[0]->transport->pinned()->put(1, nowhere, nowhere, 0, &told); });
    if (begun != Status::kOk) return begun;
    const Status ended = insist([&] { return told.times != 0 ? told.status : Status::kNotReady; });
    // The status that a callback is given comes without a text of this thread.
    if (ended != Status::kOk) return fail(ended, "the put has ended");
    ranks[0]->transport->sleeping().sleep(now_ns() + 1000);
    ranks[0]->transport->flush(testing::in_seconds(1));
    // Messages get lost with a connection only.
    const auto lost = [&] {
      return ranks[0]->transport->counts().lost + ranks[1]->transport->counts().lost != 0;
    };
    return insist([&] {
      if (ranks[1]->inbox.count >= 40) return Status::kOk;
      return lost() ? fail(Status::kBroken, "messages are missing") : Status::kNotReady;
    });
  }
};

// Each of these calls, at every count: an error with a text, or success; nothing is left over, nothing hangs.
TEST_F(IbvFailures, EveryCallMayFailAtEveryCount) {
  constexpr Call kCalls[] = {
      Call::kGetDeviceList, Call::kOpenDevice, Call::kQueryDevice, Call::kAllocPd,
      Call::kRegMr,         Call::kQueryPort,  Call::kQueryGid,    Call::kCreateChannel,
      Call::kCreateCq,      Call::kNotifyCq,   Call::kPollCq,      Call::kCreateSrq,
      Call::kPostSrqRecv,   Call::kCreateQp,   Call::kModifyQp,    Call::kPostSend,
      Call::kPostRecv,      Call::kCreateAh,   Call::kResizeCq};
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(do_everything(), Status::kOk) << last_error_text();
  for (const Call call : kCalls) {
    fake_verbs::reset();
    fake_verbs::add_device(fake_verbs::adapter());
    ASSERT_EQ(do_everything(), Status::kOk);
    const uint64_t counts = fake_verbs::calls(call);
    // If a call has many counts, only the first thirty and about twenty later ones fail.
    for (uint64_t nth = 1; nth <= counts; nth += nth < 30 ? 1 : counts / 20 + 1) {
      fake_verbs::reset();
      fake_verbs::add_device(fake_verbs::adapter());
      fake_verbs::fail_call(call, ENOMEM, nth);
      clear_error_text();
      const Status status = do_everything(kShort);
      EXPECT_NE(status, Status::kNotReady) << static_cast<int>(call) << " " << nth << ": it hangs";
      EXPECT_NE(status, Status::kBadArg) << static_cast<int>(call) << " " << nth;
      if (status != Status::kOk) {
        EXPECT_STRNE(last_error_text(), "") << static_cast<int>(call) << " " << nth;
      }
      EXPECT_TRUE(fake_verbs::live().none()) << static_cast<int>(call) << " " << nth;
    }
  }
  (void)::testing::internal::GetCapturedStderr();
}

TEST_F(IbvFailures, FailedDestroyIsLogged) {
  for (const Call call : {Call::kDestroyChannel, Call::kDestroyAh, Call::kDeregMr}) {
    IbvWorld world(3);
    world.connect(0, 1);
    (void)world[0].try_send(2, Lane::kRequest, 1, "abcd");  // its handshake needs an address handle
    fake_verbs::fail_call(call, EIO);
    ::testing::internal::CaptureStderr();
    world.ranks.clear();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("could not be released"));
    fake_verbs::forget_all();
  }
}

TEST_F(IbvFailures, PeerFailureCompletesEverythingInFlight) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  const PinnedOperations::Pinned remote{0x1000, here.key.data()};
  fake_verbs::hold(true);
  std::array<Told, 5> told;
  for (Told& one : told) {
    ASSERT_EQ(world[0].transport->pinned()->get(1, remote, here.local(), 64, &one), Status::kOk);
  }
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
  ASSERT_EQ(world[0].try_send_cell(1, Lane::kRequest, 1, "head", "payload"), Status::kOk);
  world.ranks[1].reset();
  fake_verbs::hold(false);
  ::testing::internal::CaptureStderr();
  const uint64_t deadline = testing::in_seconds(10);
  while (told[4].times == 0 && now_ns() < deadline) world[0].poll();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("rank 1"));
  EXPECT_THAT(said, HasSubstr("retry counter exceeded"));
  for (const Told& one : told) {
    EXPECT_EQ(one.times, 1U);
    EXPECT_EQ(one.status, Status::kBroken);
  }
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone: transport retry counter exceeded"));
  EXPECT_THAT(last_error_text(), HasSubstr("its address was"));
  EXPECT_EQ(world[0].transport->counts().lost, 1U);
  // Its cells are back.
  Cell cell;
  for (uint32_t i = 0; i < IbvTransport::Options().cells; ++i)
    EXPECT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kRequest, 8, &cell), Status::kOk);
  world[0].transport->flush(testing::in_seconds(10));
  // The text keeps the cause after the job has declared the rank dead.
  world[0].transport->disconnect(1);
  world[0].poll();
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone: transport retry counter exceeded"));
}

// Neither side sends: without a probe the failure would never be detected.
TEST_F(IbvFailures, ProbesDetectASilentDeadPeer) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 5'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  ASSERT_TRUE(world.until([&] { return world[0].transport->counts().probes >= 3; }));
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
  ::testing::internal::CaptureStderr();
  world.ranks[1].reset();
  const uint64_t deadline = testing::in_seconds(10);
  while (world[0].transport->counts().lost == 0 && now_ns() < deadline) {
    world[0].transport->sleeping().sleep(deadline);
    world[0].poll();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1"));
  EXPECT_EQ(world[0].transport->counts().lost, 1U);
}

// Neither carried out nor refused, as by a link that accepts no more packets: the adapter never gives up.
TEST_F(IbvFailures, StalledAdapterFailsThePeer) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 2'000'000;
  options.stall_timeout_ns = 40'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  // For longer than that only probes are posted, which are carried out.
  ASSERT_TRUE(world.until([&] { return world[0].transport->counts().probes >= 30; }));
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
  fake_verbs::hold(true);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
  ::testing::internal::CaptureStderr();
  const bool is_lost = world.until([&] { return world[0].transport->counts().lost != 0; });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no request to rank 1"));
  EXPECT_TRUE(is_lost);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone: the adapter reports no completions"));
  fake_verbs::hold(false);
}

// Only every nth message is signaled: a rare sender may have no completion between two checks for a
// stall.
TEST_F(IbvFailures, RareSenderIsNotReportedAsStalled) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 1'000'000;
  options.stall_timeout_ns = 3'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  for (uint32_t sent = 0; sent < options.send_depth; ++sent) {
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << last_error_text();
    usleep(static_cast<useconds_t>(options.probe_ns / 1000 + 100));
    (void)world[0].transport->notices().arm_events();  // checks for a stall
    world.poll_all();
  }
  EXPECT_TRUE(world.arrived(1, options.send_depth));
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
}

TEST_F(IbvFailures, OtherPeersContinueAfterAFailure) {
  IbvWorld world(3);
  world.connect(0, 1);
  world.connect(0, 2);
  ::testing::internal::CaptureStderr();
  world.ranks[1].reset();
  for (uint32_t i = 0; i < 100; ++i) {
    (void)world[0].try_send(1, Lane::kRequest, 1, "abcd");
    Status status = Status::kNotReady;
    const uint64_t deadline = testing::in_seconds(10);
    while ((status = world[0].try_send(2, Lane::kRequest, 1, "abcd")) == Status::kNotReady &&
           now_ns() < deadline) {
      world[0].poll();
      world[2].poll();
    }
    ASSERT_EQ(status, Status::kOk);
  }
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
}

TEST_F(IbvFailures, FailedRequestFlushesTheRestInOrder) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, 4);
  std::array<Told, 8> told;
  for (Told& one : told) {
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 512, &one), Status::kOk);
  }
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(world.until([&] { return told[7].times != 0; }));
  (void)::testing::internal::GetCapturedStderr();
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told.at(i).times, 1U);
    EXPECT_EQ(told.at(i).status, i < 3 ? Status::kOk : Status::kBroken) << i;
  }
}

TEST_F(IbvFailures, PartlyPostedOperationCompletesOnce) {
  limit_messages(64);
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;
  IbvWorld world(2, options);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 8192);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 8192);
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, 40);
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 8192, &told),
            Status::kOk);
  Told next;
  EXPECT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 8, &next),
            Status::kNotReady)
      << "it waits for its turn";
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  world.poll_all();
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.times, 1U);
  EXPECT_EQ(told.status, Status::kBroken);
}

// Requests of the operation that were posted are carried out without being signaled.
TEST_F(IbvFailures, DisconnectCompletesPartialOperations) {
  limit_messages(64);
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;
  IbvWorld world(2, options);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 8192);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 8192);
  for (int i = 0; i < 20; ++i) world.poll_all();
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 8192, &told),
            Status::kOk);
  world[1].poll();
  world[0].transport->disconnect(1);
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  world.poll_all();
  EXPECT_EQ(told.times, 1U);
  EXPECT_EQ(told.status, Status::kBroken);
}

TEST_F(IbvFailures, DisconnectedPeersDeliverNothing) {
  IbvWorld world(3);
  world.connect(0, 1);
  world.connect(0, 2);
  ASSERT_EQ(world[1].try_send(0, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  world[1].transport->flush(testing::in_seconds(10));
  world[0].transport->disconnect(1);
  world[0].transport->disconnect(77);  // no such rank: no effect
  ASSERT_EQ(world[2].try_send(0, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  ASSERT_TRUE(world.arrived(0, 1));
  world.poll_all();
  ASSERT_EQ(world[0].inbox.count, 1U);
  EXPECT_EQ(world[0].inbox.letters[0].from, 2U);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("declared it dead"));
}

TEST_F(IbvFailures, DisconnectedPeerIsNeverConnected) {
  IbvWorld world(2);
  world[0].transport->disconnect(1);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  (void)world[1].try_send(0, Lane::kRequest, 1, "abcd");
  for (int i = 0; i < 100; ++i) world.poll_all();
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 1U) << "rank 1's alone";
}

// The queue pair identifies the sender, whatever the message's header says.
TEST_F(IbvFailures, SpoofedSourceFailsTheSender) {
  IbvWorld world(3);
  world.connect(0, 1);
  ibv_qp* const from_1 = fake_verbs::connected_pairs().front();  // the older pair is rank 0's
  world.connect(0, 2);
  ibv::Header header;
  header.from = 2;
  fake_verbs::forge(from_1, &header, sizeof header);
  ::testing::internal::CaptureStderr();
  world.poll_all();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("from rank 1"));
  EXPECT_EQ(world[0].inbox.count, 0U);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_EQ(world.send(0, 2, Lane::kRequest, 1, "abcd"), Status::kOk);
}

// The default timeout is a minute, and so many checks.
TEST_F(IbvFailures, StallTimeoutDefaultsToOneMinute) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 1'000'000;
  options.patience_ns = 10'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  fake_verbs::hold(true);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
  for (uint32_t looks = 0; looks < 50; ++looks) {
    usleep(static_cast<useconds_t>(options.probe_ns / 1000 + 100));
    (void)world[0].transport->notices().arm_events();
    world[0].poll();
  }
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
  fake_verbs::hold(false);
}

TEST_F(IbvFailures, MalformedMessageFailsThePeer) {
  ibv::Header header;
  header.from = 1;
  const auto bytes_of = [&](uint32_t bytes) {
    std::string message(bytes, '\0');
    std::memcpy(message.data(), &header, std::min<size_t>(sizeof header, bytes));
    return message;
  };
  const auto check = [&](const std::string& message) {
    IbvWorld world(2);
    world.connect(0, 1);
    // The older pair is rank 0's.
    fake_verbs::forge(fake_verbs::connected_pairs().front(), message.data(),
                      static_cast<uint32_t>(message.size()));
    ::testing::internal::CaptureStderr();
    world.poll_all();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("from rank 1"));
    EXPECT_EQ(world[0].inbox.count, 0U);
    EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  };
  check("short");
  header.from = 0;  // not the rank at the other end
  check(bytes_of(24));
  header.from = 9;
  check(bytes_of(24));
  header = {};
  header.from = 1;
  header.head_bytes = 8;  // that are not there
  check(bytes_of(24));
  header.head_bytes = 0;
  header.word = 0x80U << 24;  // a flag that does not exist
  check(bytes_of(24));
  header.word = ibv::Header::kHasCell << 24;
  header.payload_bytes = 16385;
  check(bytes_of(24));
  header.payload_bytes = 8;
  header.receive_slot = 4;  // one for replies
  check(bytes_of(24));
  header.word = 0;  // a payload without a cell
  header.receive_slot = 0;
  check(bytes_of(24));
}

TEST_F(IbvFailures, DeviceEventsAreHandled) {
  IbvWorld world(2);
  world.connect(0, 1);
  ibv_context* context = world[0].transport->port().device.context;
  for (int i = 0; i < 100; ++i) world.poll_all();  // until no message is left to take
  ::testing::internal::CaptureStderr();
  fake_verbs::raise_event(context, IBV_EVENT_PORT_ERR, 1, nullptr);
  fake_verbs::raise_event(context, IBV_EVENT_COMM_EST, 0, nullptr);
  world[0].transport->sleeping().sleep(testing::in_seconds(10));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("port 1 is down"));
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk) << "it may come back";
  ASSERT_TRUE(world.arrived(1, 1));
  for (int i = 0; i < 100; ++i) world.poll_all();  // until no message is left to take
  ::testing::internal::CaptureStderr();
  fake_verbs::raise_event(context, IBV_EVENT_QP_FATAL, 0, fake_verbs::connected_pairs().front());
  fake_verbs::raise_event(context, IBV_EVENT_DEVICE_FATAL, 0, nullptr);
  world[0].transport->sleeping().sleep(testing::in_seconds(10));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("queue pair to rank 1 has failed"));
  EXPECT_THAT(said, HasSubstr("device fake0 has failed"));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
}

TEST_F(IbvFailures, FlushEndsAtItsDeadline) {
  IbvWorld world(2);
  world.connect(0, 1);
  fake_verbs::hold(true);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
  const uint64_t deadline = now_ns() + 20'000'000;
  world[0].transport->flush(deadline);
  EXPECT_GE(now_ns(), deadline);
  fake_verbs::hold(false);
  ASSERT_TRUE(world.arrived(1, 1));
}

TEST_F(IbvFailures, BuffersThatCannotBePostedArePostedLater) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint64_t before = fake_verbs::traffic().receives_left;
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk);
  const Call post = fake_verbs::live().srqs != 0 ? Call::kPostSrqRecv : Call::kPostRecv;
  const uint64_t calls = fake_verbs::calls(post);
  fake_verbs::fail_call(post, ENOMEM);
  ::testing::internal::CaptureStderr();  // at most one line a second: another test may have had it
  ASSERT_TRUE(world.arrived(1, 1));
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(fake_verbs::calls(post), calls + 1);
  EXPECT_TRUE(world.until([&] { return fake_verbs::traffic().receives_left == before; }));
}

// Called once for each lost peer, with rank and reason; not for peers that this rank disconnected itself.
std::vector<std::pair<Rank, std::string>> told_of_losses;

TEST_F(IbvFailures, PeerFailureCallbackRuns) {
  told_of_losses.clear();
  IbvWorld world(3);
  world[0].transport->set_peer_failed_callback(
      [](Rank rank, const char* why) noexcept { told_of_losses.emplace_back(rank, why); });
  for (const Rank to : {1U, 2U}) {
    ASSERT_EQ(world.send(0, to, Lane::kRequest, 1, "abcdefgh"), Status::kOk) << last_error_text();
    ASSERT_TRUE(world.arrived(to, 1));
  }
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcdefgh"), Status::kOk);
  world[0].transport->flush(testing::in_seconds(10));
  ASSERT_TRUE(world.until([&] { return !told_of_losses.empty(); }));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  world[0].transport->disconnect(2);
  ASSERT_TRUE(world.until([&] { return world[0].transport->counts().lost == 2; }));
  ASSERT_EQ(told_of_losses.size(), 1U);
  EXPECT_EQ(told_of_losses[0].first, 1U);
  EXPECT_THAT(told_of_losses[0].second, HasSubstr("rank 1 is gone: "));
}

}  // namespace
}  // namespace hydrant
