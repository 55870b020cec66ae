// Remote pins: peers that accept no messages, that send false sizes, and callbacks that pin again while the
// end is being destroyed.
#include "firehose/remote/channel/remote_wire.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace hydrant::testing {
namespace {

RemotePinCluster::Settings exact_budget(uint32_t ranks, uint64_t pages, uint32_t base_percent) {
  RemotePinCluster::Settings settings = exact(ranks);
  settings.options.budget_bytes = pages * kPage;
  settings.options.base_percent = base_percent;
  return settings;
}

// Pins and releases a page of rank 0. What is refused by a deaf peer is not waited for.
void use_page_of_0(RemotePinCluster& world, uint32_t from, size_t page) {
  RemoteResult result;
  remote_pin(world, from, 0, world[0].arena.addr(page), kPage, &result);
  for (int idle = 0; idle < 3; ++idle) {
    for (; world.pending() != 0; idle = 0) world.deliver();
    world.poll_all();
  }
  if (result.held()) hydrant_remote_release(result.pin);
}

TEST(RemoteAdverse, CutLeaseIsSentWhenTheMessengerHasRoom) {
  RemotePinCluster world(exact_budget(3, 64, 25));
  for (int round = 0; round < 8; ++round) {
    for (size_t page = 0; page < 56; ++page) use_page_of_0(world, 1, page);
  }
  ASSERT_GE(world.stats(1).firehose_bytes, 40 * kPage);
  world.refuse_sends_to(1);
  for (int round = 0; round < 8; ++round) {
    for (size_t page = 100; page < 140; ++page) use_page_of_0(world, 2, page);
  }
  world.refuse_sends_to(3);
  world.settle();
  EXPECT_LT(world.stats(1).firehose_bytes, 40 * kPage) << "idle, and it does not know of the cut";
  for (int round = 0; round < 8; ++round) {
    for (size_t page = 100; page < 140; ++page) use_page_of_0(world, 2, page);
  }
  EXPECT_GE(world.stats(2).firehose_bytes, 30 * kPage);
}

TEST(RemoteAdverse, BlockedPeerDelaysNoOtherPeer) {
  RemotePinCluster::Settings settings = exact_budget(3, 64, 100);
  settings.options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t,
                               const void*, size_t, void*, size_t) { return size_t{0}; };
  RemotePinCluster world(settings);
  RemoteResult first;
  RemoteResult second;
  world.refuse_sends_to(1);
  remote_pin(world, 1, 0, world[0].arena.addr(0), kPage, &first, HYDRANT_REMOTE_WRITE,
             HYDRANT_REMOTE_CALL);
  world.deliver();
  world.poll_all();
  ASSERT_EQ(world.pending(), 0u) << "its reply is kept";
  // Refused once as well: it is queued behind the other.
  remote_pin(world, 2, 0, world[0].arena.addr(1), kPage, &second, HYDRANT_REMOTE_WRITE,
             HYDRANT_REMOTE_CALL);
  world.deliver();
  world.refuse(0, 1);
  for (int i = 0; i < 4; ++i) {
    world.poll_all();
    while (world.pending() != 0) world.deliver();
  }
  EXPECT_FALSE(first.done);
  EXPECT_TRUE(second.done);
  world.refuse_sends_to(3);
  world.settle();
  EXPECT_TRUE(first.held());
  if (first.held()) hydrant_remote_release(first.pin);
  if (second.held()) hydrant_remote_release(second.pin);
}

TEST(RemoteAdverse, SumsOfRequestsDoNotWrapAround) {
  RemotePinCluster world(exact_budget(2, 4, 100));
  use_page_of_0(world, 1, 0);
  for (size_t page = 1; page < 16; ++page) {
    remote_wire::Move move{};
    move.number = 1000 + page;
    move.asked_addr = move.min_addr = world[0].arena.addr(page);
    move.asked_len = move.min_len = kPage;
    move.wanted_addr = 1;
    move.wanted_len = UINT64_MAX - 1;
    const remote_wire::Header header = remote_wire::header(remote_wire::Type::kMove);
    RemoteMessage message{1, 0, HYDRANT_LANE_REQUEST, {}};
    message.bytes.resize(sizeof header + sizeof move);
    std::memcpy(message.bytes.data(), &header, sizeof header);
    std::memcpy(message.bytes.data() + sizeof header, &move, sizeof move);
    world.inject(std::move(message));
    world.settle();
    ASSERT_LE(world.stats(0).exports, 4u) << page;
  }
  EXPECT_LE(world.stats(0).exported_bytes, 4 * kPage);
}

struct Again {
  RemotePinCluster* world;
  int first = 0, second = 0;
  int code = -1;
};

TEST(RemoteAdverse, MoveAcceptedDuringDestroyIsAnswered) {
  for (const uint32_t flags : {0u, HYDRANT_REMOTE_INLINE_DONE}) {
    RemotePinCluster::Settings settings = exact_budget(3, 64, 50);
    settings.options.flags = flags;
    Again again{};
    RemotePinCluster world(settings);
    again.world = &world;
    hydrant_remote_call_t call{};
    call.context = &again;
    call.done = [](void* context, hydrant_pin_t, const hydrant_remote_outcome_t*) {
      auto& it = *static_cast<Again*>(context);
      ++it.first;
      hydrant_remote_call_t next{};
      next.context = context;
      next.done = [](void* inner, hydrant_pin_t, const hydrant_remote_outcome_t*) {
        ++static_cast<Again*>(inner)->second;
      };
      hydrant_pin_t pin{};
      it.code = hydrant_remote_pin((*it.world)[0].end, 1, (*it.world)[1].arena.addr(0), kPage,
                                   HYDRANT_REMOTE_WRITE, &next, &pin);
    };
    hydrant_pin_t pin{};
    ASSERT_EQ(hydrant_remote_pin(world[0].end, 2, world[2].arena.addr(0), kPage,
                                 HYDRANT_REMOTE_WRITE, &call, &pin),
              GASNET_OK);
    world.rebuild();
    EXPECT_EQ(again.first, 1);
    EXPECT_EQ(again.second, again.code == GASNET_OK ? 1 : 0) << "accepted, and never answered";
  }
}

}  // namespace
}  // namespace hydrant::testing
