// Puts on nodes whose ranks use several adapters: their completion is that of a fence.
#include "rdma/ibv/make_verbs_transport.hpp"
#include "rdma/ibv/start_board.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_order_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::WriteOrder;
using testing::IbvRank;
using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

constexpr size_t kFenceTestBytes = 4096;

class IbvFences : public testing::OrderTest {
 protected:
  // Ranks of a node with this word in shared memory.
  static IbvTransport::Options on_a_node(std::atomic<uint64_t>& shared) {
    IbvTransport::Options options = IbvWorld::single();
    options.node.adapter = &shared;
    return options;
  }
  static void add_rank(IbvWorld& world, Rank rank, const IbvTransport::Options& options,
                       Rank size) {
    world.ranks.push_back(std::make_unique<IbvRank>(world.box, rank, size, options));
    ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
  }
  static uint64_t fences_of_a_put(IbvWorld& world, Rank from, Rank to) {
    world.connect(from, to);
    PinnedMemory here(*world[from].transport, Access::kLocalWrite, kFenceTestBytes);
    PinnedMemory there(*world[to].transport, kTarget, kFenceTestBytes);
    const PinnedOperations::Pinned remote = there.for_peer();
    const uint64_t before = fake_verbs::traffic().reads;
    EXPECT_EQ(finish(world,
                     [&](Told* told) {
                       return world[from].transport->pinned()->put(to, remote, here.local(),
                                                                   kFenceTestBytes, told);
                     }),
              Status::kOk)
        << last_error_text();
    return fake_verbs::traffic().reads - before;
  }
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

// The ranks share no memory: what a process of the machine may choose decides.
TEST_F(IbvFences, AreReadWhereSeveralAdaptersMayBeInUse) {
  const auto fences = [](uint32_t devices, std::vector<Rank> node_ranks) {
    fake_verbs::reset();
    add_devices(devices);
    OwnAdapters world({"", ""}, IbvWorld::single(), std::move(node_ranks));
    return fences_of_a_put(world, 0, 1);
  };
  EXPECT_EQ(fences(1, {0, 1}), 0U);
  EXPECT_EQ(fences(2, {}), 0U) << "each rank is alone on its node";
  EXPECT_EQ(fences(2, {0, 1}), 1U);
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  EXPECT_EQ(fences(2, {0, 1}), 0U) << "they would push nothing";
}

TEST_F(IbvFences, RanksThatShareMemoryKnowWhetherTheyUseOneAdapter) {
  const auto fences = [](const char* first, const char* second) {
    fake_verbs::reset();
    add_devices(2);
    std::atomic<uint64_t> shared{0};
    OwnAdapters world({first, second}, on_a_node(shared), {0, 1});
    const uint64_t there = fences_of_a_put(world, 0, 1);
    EXPECT_EQ(fences_of_a_put(world, 1, 0), there);
    return there;
  };
  EXPECT_EQ(fences("fake1", "fake1"), 0U);
  EXPECT_EQ(fences("", ""), 0U) << "both choose the best one";
  EXPECT_EQ(fences("fake0", "fake1"), 1U);
  EXPECT_EQ(fences("fake0", "fake0,fake1"), 1U) << "rails";
}

// The word is part of what a node's ranks share while they start.
TEST_F(IbvFences, RanksNoteTheirAdaptersWhileTheyStart) {
  add_devices(2);
  alignas(64) std::array<std::byte, MemoryAccess::kStartBytes> board = {};
  const std::atomic<uint64_t>& noted = ibv::StartBoard::at(board.data()).adapter;
  testing::CardBox box;
  box.node_ranks = {0, 1, 2};
  std::vector<uint64_t> words;
  for (const char* const ports : {"fake1", "fake1", "fake0"}) {
    const ScopedEnv knob("HYDRANT_IBV_PORTS", ports);
    testing::BoxBootstrap bootstrap(box, static_cast<Rank>(words.size()), 3);
    std::unique_ptr<NetworkTransport> transport;
    ASSERT_EQ(make_verbs_transport(bootstrap, true, board.data(), &transport), Status::kOk);
    words.push_back(noted.load());
  }
  EXPECT_NE(words[0], 0U);
  EXPECT_EQ(words[1], words[0]);
  EXPECT_NE(words[2], words[0]);
}

// The device gets as many posts as with one adapter, whether puts come one at a time, in a list or prepared.
TEST_F(IbvFences, PutsToANodeThatUsesOneOfTwoAdaptersCostNothingMore) {
  const auto posts = [](uint32_t devices, const char* second) {
    fake_verbs::reset();
    add_devices(devices);
    std::atomic<uint64_t> shared{0};
    OwnAdapters world({"fake0", second}, on_a_node(shared), {0, 1});
    world.connect(0, 1);
    for (int i = 0; i < 100; ++i) world.poll_all();
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFenceTestBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFenceTestBytes);
    const PinnedOperations::Pinned remote = there.for_peer();
    PinnedOperations& pinned = *world[0].transport->pinned();
    const uint64_t before = fake_verbs::traffic().posts;
    EXPECT_EQ(put(world, remote, here.local(), 8), Status::kOk);
    std::array<Told, 3> told;
    std::array<PinnedOperations::Operation, 2> list;
    for (size_t i = 0; i < list.size(); ++i) list.at(i) = {remote, here.local(), 8, &told.at(i)};
    size_t started = pinned.put_list(1, list);
    for (; started < list.size(); ++started) {
      EXPECT_EQ(pinned.put(1, remote, here.local(), 8, &told.at(started)), Status::kOk);
    }
    const auto prepared = pinned.make_persistent_put(1, remote.addr, here.address(), 8);
    EXPECT_EQ(prepared != nullptr ? prepared->start(remote.key, here.key.data(), &told.back())
                                  : pinned.put(1, remote, here.local(), 8, &told.back()),
              Status::kOk);
    EXPECT_TRUE(world.until([&] {
      return std::all_of(told.begin(), told.end(), [](const Told& one) { return one.times != 0; });
    }));
    return fake_verbs::traffic().posts - before;
  };
  const uint64_t with_one = posts(1, "fake0");
  EXPECT_EQ(with_one, 3U);
  EXPECT_EQ(posts(2, "fake0"), with_one);
  EXPECT_EQ(posts(2, "fake1"), 2 * 4U) << "each put and its fence";
}

// Rank 1's memory is behind its own adapter, whatever that of the rank which puts.
TEST_F(IbvFences, AreReadUnlessTheTargetIsRelaxed) {
  add_devices(2);
  IbvWorld world(0);
  world.box.node_ranks = {0, 1};
  IbvTransport::Options options = IbvWorld::single();
  {
    const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
    options.ports = "fake0";
    add_rank(world, 0, options, 2);
  }
  options.ports = "fake1";
  add_rank(world, 1, options, 2);
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
  EXPECT_EQ(fences_of_a_put(world, 1, 0), 0U);
}

// To the other rank the better port looks as good as before.
TEST_F(IbvFences, RankThatFallsBackToAWorsePortIsCounted) {
  fake_verbs::Device better = fake_verbs::adapter();
  better.name = "fake0";
  better.speed = 32;
  fake_verbs::Device worse = better;
  worse.name = "fake1";
  worse.speed = 16;
  fake_verbs::add_device(better);
  fake_verbs::add_device(worse);
  std::atomic<uint64_t> shared{0};
  IbvWorld world(0);
  world.box.node_ranks = {0, 1};
  add_rank(world, 0, on_a_node(shared), 2);
  ::testing::internal::CaptureStderr();
  const int room = std::exchange(fake_verbs::facts_of("fake0").max_qp, 0);
  add_rank(world, 1, on_a_node(shared), 2);
  fake_verbs::facts_of("fake0").max_qp = room;
  (void)::testing::internal::GetCapturedStderr();
  ASSERT_STREQ(world[0].transport->port().name, "fake0");
  ASSERT_STREQ(world[1].transport->port().name, "fake1");
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
  EXPECT_EQ(fences_of_a_put(world, 1, 0), 1U);
}

TEST_F(IbvFences, ProcessesOfOtherJobsMayUseFurtherAdapters) {
  add_devices(2);
  std::atomic<uint64_t> shared{0};
  IbvTransport::Options options = on_a_node(shared);
  options.max_joined = 1;
  OwnAdapters world({"fake0", "fake0"}, options, {0, 1});
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
}

// Rank 0 may meet others, and rank 1 may not.
TEST_F(IbvFences, RankThatMayMeetOthersIsCountedByItsNeighbours) {
  add_devices(2);
  std::atomic<uint64_t> shared{0};
  IbvTransport::Options options = on_a_node(shared);
  IbvWorld world(0);
  world.box.node_ranks = {0, 1};
  options.ports = "fake0";
  options.max_joined = 1;
  add_rank(world, 0, options, 2);
  options.ports = "fake1";
  options.max_joined = 0;
  add_rank(world, 1, options, 2);
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
  EXPECT_EQ(fences_of_a_put(world, 1, 0), 1U);
}

TEST_F(IbvFences, PeerIsConnectedOnceTheMemoryOfFencesCanBeRegistered) {
  add_devices(2);
  OwnAdapters world({"fake0", "fake1"}, IbvWorld::single(), {0, 1});
  ::testing::internal::CaptureStderr();
  fake_verbs::fail_call(fake_verbs::Call::kRegMr, ENOMEM, 5);  // after the memory of both peers
  world.connect(0, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("fences of puts"));
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
}

// Rank 0 is alone on a node with one device, and so is rank 3, on one with two; ranks 1 and 2 use two.
TEST_F(IbvFences, FollowPutsToThoseNodesThatUseSeveralAdapters) {
  IbvWorld world(0);
  add_devices(1);
  add_rank(world, 0, IbvWorld::single(), 4);
  fake_verbs::next_node();
  add_devices(2);
  std::atomic<uint64_t> shared{0};
  IbvTransport::Options options = on_a_node(shared);
  world.box.node_ranks = {1, 2};
  options.ports = "fake0";
  add_rank(world, 1, options, 4);
  options.ports = "fake1";
  add_rank(world, 2, options, 4);
  world.box.node_ranks = {3};
  options = IbvWorld::single();
  options.ports = "fake1";
  add_rank(world, 3, options, 4);
  EXPECT_EQ(fences_of_a_put(world, 0, 1), 1U);
  EXPECT_EQ(fences_of_a_put(world, 0, 2), 1U);
  EXPECT_EQ(fences_of_a_put(world, 0, 3), 0U);
  EXPECT_EQ(fences_of_a_put(world, 1, 0), 0U);
  EXPECT_EQ(fences_of_a_put(world, 1, 2), 1U);
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
