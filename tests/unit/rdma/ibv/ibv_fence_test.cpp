// Puts on nodes whose ranks use several adapters: their completion is that of a fence.
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_order_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::WriteOrder;
using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

constexpr size_t kFenceTestBytes = 4096;

class IbvFences : public testing::OrderTest {
 protected:
  // Ranks of one node, each with an adapter of its own.
  static IbvTransport::Options shallow() {
    IbvTransport::Options options = IbvWorld::single();
    options.send_depth = 16;
    return options;
  }
};

// Its processor looks without a word from its own adapter, for instance because a rank with another adapter
// has told it.
TEST_F(IbvFences, CompletedPutIsThereForRanksThatHearOfItByAnotherAdapter) {
  for (const WriteOrder order : {WriteOrder::kOrdered, WriteOrder::kUnordered}) {
    add_holding_devices(2, order);
    OwnAdapters world({"fake0", "fake1"}, IbvWorld::single(), {0, 1});
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
    const PinnedOperations::Pinned remote = there.for_peer();
    for (const size_t bytes : {size_t{8}, kFenceTestBytes}) {
      fill(here, bytes);
      ASSERT_EQ(put(world, remote, here.local(), bytes), Status::kOk);
      EXPECT_TRUE(is_there(here, there, bytes)) << static_cast<uint32_t>(order) << " " << bytes;
    }
  }
}

TEST_F(IbvFences, AreReadWhereSeveralAdaptersAreInUseOnly) {
  const auto fences = [](uint32_t devices, std::vector<Rank> node_ranks, uint32_t nodes = 0) {
    fake_verbs::reset();
    add_devices(devices);
    OwnAdapters world({"", "", ""}, IbvWorld::single(), std::move(node_ranks), nodes);
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
    EXPECT_EQ(put(world, there.for_peer(), here.local(), kFenceTestBytes), Status::kOk);
    return fake_verbs::traffic().reads;
  };
  EXPECT_EQ(fences(1, {0, 1}), 0U);
  EXPECT_EQ(fences(2, {}), 0U) << "each rank is alone on its node";
  EXPECT_EQ(fences(2, {0, 1}), 1U);
  EXPECT_EQ(fences(2, {}, 2), 1U) << "it is alone, and those that it puts to are not";
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  EXPECT_EQ(fences(2, {0, 1}), 0U) << "they would push nothing";
}

// The first rail has the put, and the other one reads or writes the place next.
TEST_F(IbvFences, CompletedPutComesBeforeWhatAnotherRailDoes) {
  IbvTransport::Options options = testing::rail_options();
  add_holding_devices(4, WriteOrder::kOrdered);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, options);
  ASSERT_TRUE(settle(world, 2));
  constexpr size_t kBytes = 4 * testing::kStripe;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kBytes);
  PinnedMemory there(*world[1].transport, kTarget, kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  fill(here, 1);
  const size_t half = kBytes / 2;
  const PinnedOperations::Pinned second{remote.addr + half, remote.key};
  const std::byte first_byte = here.data.get()[0];
  ASSERT_EQ(put(world, second, here.local(), 8), Status::kOk);
  ASSERT_EQ(get(world, remote, here.local(), kBytes), Status::kOk);
  EXPECT_EQ(here.data.get()[half], first_byte);
  fill(here, 2);
  ASSERT_EQ(put(world, second, here.local(), 8), Status::kOk);
  ASSERT_EQ(put(world, remote, here.local(), kBytes), Status::kOk);
  ASSERT_EQ(announce(world, 0, 1), Status::kOk);
  EXPECT_TRUE(is_there(here, there, kBytes));
}

TEST_F(IbvFences, PutsBeyondTheQueueComplete) {
  add_holding_devices(2, WriteOrder::kUnordered);
  OwnAdapters world({"fake0", "fake1"}, shallow(), {0, 1});
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  fill(here, 1);
  std::vector<Told> told(kFenceTestBytes / 8);
  for (size_t i = 0; i < told.size(); ++i) {
    const PinnedOperations::Pinned to{remote.addr + 8 * i, remote.key};
    ASSERT_EQ(world.insist([&] {
      return world[0].transport->pinned()->put(1, to, here.local(8 * i), 8, &told[i]);
    }),
              Status::kOk);
  }
  ASSERT_TRUE(world.until([&] {
    return std::all_of(told.begin(), told.end(), [](const Told& one) { return one.times != 0; });
  }));
  for (const Told& one : told) EXPECT_EQ(one.times, 1U);
  EXPECT_TRUE(is_there(here, there, kFenceTestBytes));
}

// A fence for which there was no room is posted by any poll, and may end in another thread before the first
// goes on.
TEST_F(IbvFences, EachEndsOnceIfSeveralThreadsPoll) {
  struct Ends : Completion {
    std::atomic<uint32_t> times{0};
  };
  add_holding_devices(2, WriteOrder::kUnordered);
  IbvTransport::Options options = shallow();
  options.single_threaded = false;
  OwnAdapters world({"fake0", "fake1"}, options, {0, 1});
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::vector<Ends> ends(2048);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      testing::Inbox inbox;
      while (!is_over.load()) (void)world[0].transport->poll(inbox, 10, false);
    });
  }
  Status status = Status::kOk;
  for (size_t i = 0; i < ends.size() && status == Status::kOk; ++i) {
    ends[i].done = [](Completion& completion, Status) noexcept {
      static_cast<Ends&>(completion).times.fetch_add(1);
    };
    status = world.insist(
        [&] { return world[0].transport->pinned()->put(1, remote, here.local(), 8, &ends[i]); });
  }
  const bool have_ended = status == Status::kOk && world.until([&] {
    return std::all_of(ends.begin(), ends.end(), [](const Ends& one) { return one.times != 0; });
  });
  is_over.store(true);
  for (std::thread& poller : pollers) poller.join();
  EXPECT_TRUE(have_ended);
  for (const Ends& one : ends) EXPECT_EQ(one.times, 1U);
}

TEST_F(IbvFences, FailureOfThePutOrItsFenceIsReportedOnce) {
  for (const uint64_t nth : {1U, 2U}) {
    add_holding_devices(2, WriteOrder::kOrdered);
    OwnAdapters world({"fake0", "fake1"}, IbvWorld::single(), {0, 1});
    world.connect(0, 1);
    for (int i = 0; i < 100; ++i) world.poll_all();
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
    const PinnedOperations::Pinned remote = there.for_peer();
    ::testing::internal::CaptureStderr();
    fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, nth);
    EXPECT_EQ(put(world, remote, here.local(), kFenceTestBytes), Status::kBroken) << nth;
    (void)::testing::internal::GetCapturedStderr();
  }
}

TEST_F(IbvFences, FencesUnderWayEndWithTheirPeer) {
  add_holding_devices(2, WriteOrder::kOrdered);
  OwnAdapters world({"fake0", "fake1"}, shallow(), {0, 1});
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::array<Told, 8> told;
  for (Told& one : told) {
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), kFenceTestBytes, &one),
              Status::kOk);
  }
  world[0].poll();  // the writes complete, and fences are posted
  world[0].transport->disconnect(1);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(world.until([&] {
    return std::all_of(told.begin(), told.end(), [](const Told& one) { return one.times != 0; });
  }));
  (void)::testing::internal::GetCapturedStderr();
  for (int i = 0; i < 20; ++i) world.poll_all();
  for (const Told& one : told) EXPECT_EQ(one.times, 1U);
}

}  // namespace
}  // namespace hydrant
