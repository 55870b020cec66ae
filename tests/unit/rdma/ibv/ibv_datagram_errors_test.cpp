// Errors of the queue pair that carries handshakes: first contact goes on, and an idle rank sleeps.
#include "rdma/ibv/connection/datagram_queue.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::SimulatedClock;

const std::string kOverlong(1000, 'x');

class IbvDatagramErrors : public testing::VerbsTest {
 protected:
  // The number of the queue pair for handshakes that the rank has published.
  static uint32_t queue_of(IbvWorld& world, Rank rank) {
    const std::string& bytes = world.box.endpoints.at("ibv" + std::to_string(rank));
    ibv::EndpointAddress endpoint;
    EXPECT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(bytes)), &endpoint), Status::kOk);
    return endpoint.address.datagram_queue;
  }
  static void send_overlong(uint32_t queue) {
    fake_verbs::send_stray(queue, kOverlong.data(), static_cast<uint32_t>(kOverlong.size()));
  }
  static IbvTransport::Options simulated() {
    IbvTransport::Options options = IbvWorld::single();
    options.handshakes.clock = SimulatedClock::read;
    return options;
  }
  static bool can_sleep(IbvRank& rank) {
    Sleeping::Announcement announcement;
    if (!rank.transport->sleeping().announce_sleep(&announcement)) return false;
    rank.transport->sleeping().end_sleep();
    return true;
  }
};

TEST_F(IbvDatagramErrors, FailedSendIsFollowedByOthers) {
  IbvWorld world(3);
  fake_verbs::fail_datagrams(IBV_WC_LOC_QP_OP_ERR);
  world.connect(0, 1);
  world.connect(0, 2);
  EXPECT_EQ(world[0].transport->counts().ud_errors, 1U);
}

TEST_F(IbvDatagramErrors, OverlongDatagramDoesNotEndFirstContact) {
  IbvWorld world(2);
  send_overlong(queue_of(world, 1));
  ASSERT_TRUE(world.until([&] { return world[1].transport->counts().ud_errors == 1; }));
  world.connect(0, 1);
}

TEST_F(IbvDatagramErrors, OverlongDatagramIsMerelyLostWhereTheQueuePairGoesOn) {
  IbvWorld world(2);
  fake_verbs::spare_queues(true);
  for (int i = 0; i < 3; ++i) send_overlong(queue_of(world, 1));
  ASSERT_TRUE(world.until([&] { return world[1].transport->counts().strangers == 3; }));
  EXPECT_EQ(world[1].transport->counts().ud_errors, 0U);
  world.connect(0, 1);
}

// Peers know the number of the queue pair, so it has to stay the same.
TEST_F(IbvDatagramErrors, BrokenQueuePairReceivesAndSendsAgain) {
  IbvWorld world(3);
  fake_verbs::break_pair(queue_of(world, 0));
  world.connect(0, 1);
  world.connect(2, 0);
  EXPECT_EQ(world[0].transport->counts().ud_errors, 1U);
}

// Rank 0 sends nothing that could be flushed.
TEST_F(IbvDatagramErrors, QueuePairWhoseFailureAnEventAloneReportsIsReset) {
  IbvWorld world(2);
  ::testing::internal::CaptureStderr();
  fake_verbs::break_pair(queue_of(world, 0), false);
  world.connect(1, 0);
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(world[0].transport->counts().ud_errors, 1U);
}

TEST_F(IbvDatagramErrors, IdleRankSleepsAfterwards) {
  IbvWorld world(2);
  ::testing::internal::CaptureStderr();
  fake_verbs::break_pair(queue_of(world, 0));
  EXPECT_TRUE(world.until([&] { return can_sleep(world[0]); }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("fake0: the handshake queue pair has failed: an event"),
                    HasSubstr("fake0 port 1: the handshake queue pair has failed: Work Request "
                              "Flushed Error; it is reset in")));
}

TEST_F(IbvDatagramErrors, ResetThatFailsOnceIsTriedAgain) {
  IbvWorld world(2, simulated());
  fake_verbs::fail_call(Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  fake_verbs::break_pair(queue_of(world, 0));
  // Rank 0 finds that it is broken, and its first reset fails.
  for (int i = 0; i < 100; ++i) world[0].poll();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("cannot reset the handshake queue pair: Input/output error; trying again "
                        "in 1000 ms"));
  SimulatedClock::elapse(1000);
  for (int i = 0; i < 100; ++i) world[0].poll();
  world.connect(1, 0);
  EXPECT_EQ(world[0].transport->counts().ud_errors, 1U);
}

TEST_F(IbvDatagramErrors, ResetsThatGoOnFailingEndFirstContactsAndNothingElse) {
  IbvWorld world(3, simulated());
  world.connect(0, 1);
  fake_verbs::fail_always(Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  fake_verbs::break_pair(queue_of(world, 0));
  EXPECT_TRUE(world.until([&] {
    SimulatedClock::elapse(10);
    return world[0].try_send(2, Lane::kRequest, 1, "abcd") == Status::kBroken;
  }));
  fake_verbs::fail_always(Call::kModifyQp, 0);
  EXPECT_EQ(world[0].try_send(2, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("rank 2 cannot be reached"), HasSubstr("handshake queue pair"),
                    HasSubstr("could not be reset")));
  EXPECT_TRUE(world.until([&] { return can_sleep(world[0]); }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("ranks without a connection can no longer be reached"));
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kOk);
  EXPECT_TRUE(world.arrived(1, 1));
}

TEST_F(IbvDatagramErrors, ResetsThatGoOnFailingEndFirstContactsUnderWay) {
  IbvWorld world(2, simulated());
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  fake_verbs::fail_always(Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  fake_verbs::break_pair(queue_of(world, 0));
  const uint64_t deadline = testing::in_seconds(10);
  Status status = Status::kNotReady;
  while (status == Status::kNotReady && now_ns() < deadline) {
    SimulatedClock::elapse(10);
    world[0].poll();  // rank 1 does not poll, and does not answer
    status = world[0].try_send(1, Lane::kRequest, 1, "abcd");
  }
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, Status::kBroken);
  EXPECT_THAT(last_error_text(),
              HasSubstr("rank 1 is gone: the handshake queue pair of this process has failed"));
}

// ---- the queue alone ----

struct TestQueue {
  explicit TestQueue(ibv::AddressHandles& addresses) : queue(options, addresses, errors) {}
  uint32_t poll() {
    return queue.poll(
        [this](const ibv::Handshake* handshake) { ++(handshake != nullptr ? heard : others); });
  }
  void poll_all() {
    while (poll() != 0) {
    }
  }

  const ibv::HandshakeOptions options = {.clock = SimulatedClock::read};
  ibv::Counter errors;
  ibv::DatagramQueue queue;
  uint32_t heard = 0;
  uint32_t others = 0;
};

class IbvDatagramQueue : public testing::VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    ASSERT_EQ(ibv::open_port("", &port_), Status::kOk);
    for (TestQueue* each : {&a_, &b_}) ASSERT_EQ(each->queue.open(port_, nullptr, 0), Status::kOk);
    handshake_.endpoint.address.mtu = IBV_MTU_1024;
    handshake_.endpoint.address.lid = port_.lid;
    handshake_.endpoint.address.gid = port_.gid;
    handshake_.endpoint.address.needs_grh = port_.needs_grh;
  }
  void TearDown() override {
    a_.queue.close();
    b_.queue.close();
    addresses_.close();
    close_ibv_device(port_.device);
    VerbsTest::TearDown();
  }
  bool send(TestQueue& from, TestQueue& to) {
    ibv::Destination* const destination = addresses_.add_user(handshake_.endpoint.address);
    const Status status = from.queue.send(handshake_, *destination, to.queue.number(), "the other");
    addresses_.remove_user(*destination);
    return status == Status::kOk;
  }

  ibv::Port port_;
  const ibv::HandshakeOptions options_ = {.clock = SimulatedClock::read};
  ibv::AddressHandles addresses_{options_, port_};
  TestQueue a_{addresses_};
  TestQueue b_{addresses_};
  ibv::Handshake handshake_;
};

TEST_F(IbvDatagramQueue, SendsAgainOnceEverySendWasFlushed) {
  fake_verbs::fail_datagrams(IBV_WC_LOC_QP_OP_ERR);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(send(a_, b_));
  EXPECT_NE(a_.poll(), 0U);
  EXPECT_FALSE(send(a_, b_)) << "four more are to be flushed";
  a_.poll_all();
  EXPECT_TRUE(send(a_, b_));
  a_.poll_all();
  b_.poll_all();
  EXPECT_EQ(b_.heard, 1U);
  EXPECT_EQ(a_.errors.value(), 1U);
}

TEST_F(IbvDatagramQueue, CompletionsFromBeforeAResetAreIgnored) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(send(a_, b_));
  fake_verbs::break_pair(a_.queue.number());
  EXPECT_EQ(a_.poll(), 16U);
  EXPECT_FALSE(send(a_, b_));
  fake_verbs::fail_call(Call::kPollCq, EIO);  // so that the reset leaves them in the queue
  EXPECT_EQ(a_.poll(), 16U);
  a_.poll_all();
  EXPECT_EQ(a_.others, 0U);
  EXPECT_EQ(a_.errors.value(), 1U) << "no second reset";
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(send(a_, b_));
    ASSERT_TRUE(send(b_, a_));
    a_.poll_all();
    b_.poll_all();
  }
  EXPECT_EQ(a_.heard, 40U);
  EXPECT_EQ(b_.heard, 40U);
}

TEST_F(IbvDatagramQueue, AddressHandleLivesUntilTheLastSendHasEnded) {
  EXPECT_EQ(fake_verbs::live().ahs, 0U);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(send(a_, b_));
  EXPECT_EQ(fake_verbs::live().ahs, 1U) << "the same destination";
  EXPECT_EQ(a_.poll(), 16U);
  EXPECT_EQ(fake_verbs::live().ahs, 1U);
  a_.poll_all();
  EXPECT_EQ(fake_verbs::live().ahs, 0U);
  // A reset ends sends whose completions have not been read.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(send(a_, b_));
  fake_verbs::break_pair(a_.queue.number());
  EXPECT_EQ(a_.poll(), 16U) << "receive buffers that were flushed";
  EXPECT_EQ(fake_verbs::live().ahs, 1U);
  EXPECT_EQ(a_.poll(), 0U);
  EXPECT_EQ(fake_verbs::live().ahs, 0U);
}

TEST_F(IbvDatagramQueue, EventThatIsReadAfterTheResetIsIgnored) {
  fake_verbs::break_pair(a_.queue.number());
  EXPECT_EQ(a_.poll(), 16U);
  a_.poll_all();
  a_.queue.note_event();
  a_.poll_all();
  EXPECT_EQ(a_.errors.value(), 1U) << "no second reset";
  ASSERT_TRUE(send(b_, a_));
  a_.poll_all();
  EXPECT_EQ(a_.heard, 1U);
}

TEST_F(IbvDatagramQueue, ResetsAreASecondApart) {
  fake_verbs::break_pair(a_.queue.number());
  (void)a_.poll();
  a_.poll_all();
  EXPECT_EQ(a_.queue.next_reset_ns(), UINT64_MAX) << "it runs";
  fake_verbs::break_pair(a_.queue.number());
  (void)a_.poll();
  EXPECT_EQ(a_.queue.next_reset_ns(),
            SimulatedClock::time_ns + 1000 * SimulatedClock::kMillisecond);
  EXPECT_FALSE(a_.queue.has_failed());
}

TEST_F(IbvDatagramQueue, FailedQueueIsNotPolled) {
  fake_verbs::break_pair(a_.queue.number());
  fake_verbs::fail_always(Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(a_.poll(), 16U);
  uint64_t resets = fake_verbs::calls(Call::kModifyQp);
  EXPECT_EQ(a_.poll(), 0U);
  EXPECT_EQ(fake_verbs::calls(Call::kModifyQp), ++resets) << "at once";
  for (const uint64_t pause_ms : {1000U, 2000U, 4000U, 8000U}) {
    EXPECT_FALSE(a_.queue.has_failed());
    SimulatedClock::elapse(pause_ms - 1);
    EXPECT_EQ(a_.poll(), 0U);
    EXPECT_EQ(fake_verbs::calls(Call::kModifyQp), resets) << pause_ms;
    SimulatedClock::elapse(1);
    EXPECT_EQ(a_.poll(), 0U);
    EXPECT_EQ(fake_verbs::calls(Call::kModifyQp), ++resets) << pause_ms;
  }
  const uint64_t polls = fake_verbs::calls(Call::kPollCq);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a_.poll(), 0U);
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(fake_verbs::calls(Call::kPollCq), polls);
  EXPECT_TRUE(a_.queue.has_failed());
  EXPECT_EQ(a_.queue.next_reset_ns(), UINT64_MAX);
  EXPECT_TRUE(a_.queue.request_notice());
  EXPECT_FALSE(send(a_, b_));
}

}  // namespace
}  // namespace hydrant
