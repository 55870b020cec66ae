// A device that dies: nothing that is posted there stays open.
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <functional>

namespace hydrant {
namespace {

using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

class IbvDeadDevice : public testing::VerbsTest {
 protected:
  // The first rank learns of the death by an event of the device, or when it cannot shut a queue pair.
  static void report(IbvWorld& world, bool is_event) {
    if (is_event) {
      fake_verbs::raise_event(world[0].transport->port().device.context, IBV_EVENT_DEVICE_FATAL, 0,
                              nullptr);
    } else {
      world[0].transport->disconnect(1);
    }
  }
};

// With an event the driver pretends to change the queue pair, without one it refuses.
TEST_F(IbvDeadDevice, PutsGetsAndMessagesUnderWayEnd) {
  for (const bool is_event : {true, false}) {
    fake_verbs::reset();
    fake_verbs::add_device(fake_verbs::adapter());
    IbvWorld world(2);
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
    PinnedMemory there(*world[1].transport, kTarget, 4096);
    const PinnedOperations::Pinned remote = there.for_peer();
    std::array<Told, 20> told;  // more than the adapter reports at once
    for (size_t i = 0; i < told.size(); ++i) {
      PinnedOperations& pinned = *world[0].transport->pinned();
      ASSERT_EQ(i % 2 == 0 ? pinned.put(1, remote, here.local(), 4096, &told.at(i))
                           : pinned.get(1, remote, here.local(), 4096, &told.at(i)),
                Status::kOk);
    }
    ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
    ASSERT_EQ(world[0].try_send_cell(1, Lane::kRequest, 1, "head", "payload"), Status::kOk);
    fake_verbs::kill_device("fake0", is_event ? 0 : EIO);
    report(world, is_event);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(world.until([&] { return told.back().times != 0; }));
    (void)::testing::internal::GetCapturedStderr();
    for (const Told& one : told) {
      EXPECT_EQ(one.times, 1U);
      EXPECT_EQ(one.status, Status::kBroken);
    }
    Cell cell;  // The messages have given theirs back.
    for (uint32_t i = 0; i < IbvTransport::Options().cells; ++i)
      EXPECT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kRequest, 8, &cell),
                Status::kOk);
    EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  }
}

TEST_F(IbvDeadDevice, PutThatIsPartlyPostedEnds) {
  for (const bool is_event : {true, false}) {
    limit_messages(64);
    IbvTransport::Options options = IbvWorld::single();
    options.send_depth = 16;
    IbvWorld world(2, options);
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, 8192);
    PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 8192);
    Told told;
    ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 8192, &told),
              Status::kOk);
    fake_verbs::kill_device("fake0", is_event ? 0 : EIO);
    report(world, is_event);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(world.until([&] { return told.times != 0; }));
    (void)::testing::internal::GetCapturedStderr();
    world.poll_all();
    EXPECT_EQ(told.times, 1U);
    EXPECT_EQ(told.status, Status::kBroken);
  }
}

// The driver pretends to shut the queue pair, and there is no event.
TEST_F(IbvDeadDevice, RequestsUnderWayEndWithoutAnyReport) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 2'000'000;
  options.stall_timeout_ns = 40'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), here.local(), 4096, &told),
            Status::kOk);
  fake_verbs::kill_device("fake0", 0);
  report(world, false);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(world.until([&] { return told.times != 0; }));
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.status, Status::kBroken);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), ::testing::HasSubstr("the job has declared it dead"));
  for (int i = 0; i < 100; ++i) world.poll_all();
  EXPECT_EQ(told.times, 1U);
}

// The adapter refuses to shut the queue pair, and reports its requests later all the same.
TEST_F(IbvDeadDevice, CompletionsOfAbandonedRequestsAreIgnored) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  fake_verbs::hold(true);
  std::array<Told, 5> told;
  for (Told& one : told)
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 4096, &one), Status::kOk);
  fake_verbs::fail_call(fake_verbs::Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  world[0].transport->disconnect(1);
  EXPECT_TRUE(world.until([&] { return told.back().times != 0; }));
  fake_verbs::hold(false);
  for (int i = 0; i < 100; ++i) world.poll_all();
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_GE(fake_verbs::traffic().writes, told.size()) << "it has carried them out";
  for (const Told& one : told) {
    EXPECT_EQ(one.times, 1U);
    EXPECT_EQ(one.status, Status::kBroken);
  }
}

// Polls have not seen them yet.
TEST_F(IbvDeadDevice, CompletedPutsAreReportedAsComplete) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::array<Told, 40> told;  // more than a poll reads
  for (Told& one : told)
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 64, &one), Status::kOk);
  world[1].poll();  // carries them out
  fake_verbs::kill_device("fake0");
  report(world, false);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(world.until([&] { return told.back().times != 0; }));
  (void)::testing::internal::GetCapturedStderr();
  for (const Told& one : told) {
    EXPECT_EQ(one.times, 1U);
    EXPECT_EQ(one.status, Status::kOk);
  }
}

// An adapter without shared receive queues may refuse the buffers of a failed queue pair for ever.
TEST_F(IbvDeadDevice, RefusedBuffersOfAPeerThatIsGoneKeepNoRankAwake) {
  fake_verbs::reset();
  fake_verbs::add_device({.max_srq_wr = 0});
  IbvWorld world(2);
  world.connect(0, 1);
  fake_verbs::fail_always(fake_verbs::Call::kPostRecv, EINVAL);
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kOk);
  ASSERT_TRUE(world.arrived(0, 1));
  world[0].transport->disconnect(1);
  Sleeping& sleeping = world[0].transport->sleeping();
  Sleeping::Announcement announcement;
  EXPECT_TRUE(world.until([&] { return sleeping.announce_sleep(&announcement); }));
  sleeping.end_sleep();
  (void)::testing::internal::GetCapturedStderr();
}

// Each put to another peer is followed by the next, so that the completion queue is never empty.
TEST_F(IbvDeadDevice, BusyCompletionQueueDelaysNoEnd) {
  struct Renewed : Completion {
    Renewed() { done = &renew; }
    static void renew(Completion& completion, Status status) noexcept {
      auto& renewed = static_cast<Renewed&>(completion);
      EXPECT_EQ(status, Status::kOk);
      if (!renewed.goes_on) return;
      EXPECT_EQ(renewed.put(), Status::kOk);
    }
    std::function<Status()> put;
    bool goes_on = true;
  };
  IbvWorld world(3);
  world.connect(0, 1);
  world.connect(0, 2);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  PinnedMemory elsewhere(*world[2].transport, kTarget, 4096);
  PinnedOperations& pinned = *world[0].transport->pinned();
  Renewed renewed;
  const PinnedOperations::Pinned remote = elsewhere.for_peer();
  renewed.put = [&] { return pinned.put(2, remote, here.local(), 64, &renewed); };
  for (int i = 0; i < 40; ++i) ASSERT_EQ(renewed.put(), Status::kOk);
  Told told;
  ASSERT_EQ(pinned.put(1, there.for_peer(), here.local(), 64, &told), Status::kOk);
  fake_verbs::break_pair(fake_verbs::connected_pairs().front()->qp_num, false);
  fake_verbs::fail_call(fake_verbs::Call::kModifyQp, EIO);
  ::testing::internal::CaptureStderr();
  world[0].transport->disconnect(1);
  for (int i = 0; i < 10; ++i) world[0].poll();
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.times, 1U);
  EXPECT_EQ(told.status, Status::kBroken);
  renewed.goes_on = false;
  for (int i = 0; i < 10; ++i) world[0].poll();
}

// Ending a peer reads the completion queue.
TEST_F(IbvDeadDevice, PeersAreEndedOnceForAQueueThatCannotBeRead) {
  constexpr Rank kPeers = 8;
  IbvWorld world(kPeers + 1);
  for (Rank peer = 1; peer <= kPeers; ++peer) world.connect(0, peer);
  ::testing::internal::CaptureStderr();
  fake_verbs::fail_always(fake_verbs::Call::kPollCq, EIO);
  world[0].poll();
  EXPECT_EQ(world[0].transport->counts().lost, kPeers);
  const uint64_t reads = fake_verbs::calls(fake_verbs::Call::kPollCq);
  constexpr uint64_t kPolls = 1000;
  for (uint64_t i = 0; i < kPolls; ++i) world[0].poll();
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_LT(fake_verbs::calls(fake_verbs::Call::kPollCq) - reads, 3 * kPolls)
      << "that of messages, and that of handshakes";
}

class IbvDeadRail : public testing::RailTest {};

TEST_F(IbvDeadRail, StripesUnderWayEnd) {
  add_devices(2);
  IbvWorld world(2, testing::rail_options());
  ASSERT_TRUE(settle(world, 2));
  constexpr size_t kBytes = 4 * testing::kStripe;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kBytes);
  PinnedMemory there(*world[1].transport, kTarget, kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  Told put;
  Told get;
  ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), kBytes, &put), Status::kOk);
  ASSERT_EQ(world[0].transport->pinned()->get(1, remote, here.local(), kBytes, &get), Status::kOk);
  fake_verbs::kill_device("fake1");
  world[0].transport->disconnect(1);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(world.until([&] { return put.times != 0 && get.times != 0; }));
  (void)::testing::internal::GetCapturedStderr();
  for (const Told* one : {&put, &get}) {
    EXPECT_EQ(one->times, 1U);
    EXPECT_EQ(one->status, Status::kBroken);
  }
}

TEST_F(IbvDeadDevice, RankThatWasToldOfItReachesNobodyAnyMore) {
  IbvWorld world(2);
  ::testing::internal::CaptureStderr();
  fake_verbs::raise_event(world[0].transport->port().device.context, IBV_EVENT_DEVICE_FATAL, 0,
                          nullptr);
  world[0].transport->sleeping().sleep(testing::in_seconds(10));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), ::testing::HasSubstr("rank 1 cannot be reached"));
  (void)::testing::internal::GetCapturedStderr();
}

std::vector<Rank> reported;

// It may wait for the others to contact it.
TEST_F(IbvDeadDevice, RankWithoutAConnectionReportsOnceThatItReachesNobody) {
  for (const bool is_one_node : {false, true}) {
    reported.clear();
    testing::CardBox box;
    if (is_one_node) box.node_ranks = {0, 1};
    testing::IbvRank first(box, 0, 2, IbvWorld::single());
    testing::IbvRank second(box, 1, 2, IbvWorld::single());
    IbvTransport& transport = *first.transport;
    transport.set_peer_failed_callback(
        [](Rank rank, const char*) noexcept { reported.push_back(rank); });
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) {
      fake_verbs::raise_event(transport.port().device.context, IBV_EVENT_DEVICE_FATAL, 0, nullptr);
      transport.sleeping().sleep(testing::in_seconds(10));
    }
    (void)::testing::internal::GetCapturedStderr();
    EXPECT_EQ(reported, std::vector<Rank>{1}) << is_one_node;
  }
}

}  // namespace
}  // namespace hydrant
