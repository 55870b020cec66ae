// Remote pins between ends in one process: hits, moves, what rides along, recalls, quotas.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace hydrant::testing {
namespace {

TEST(RemotePinService, MissIsOneRoundTripAndAHitIsNone) {
  RemotePinCluster world(exact());
  RemoteResult first;
  remote_pin(world, 0, 1, world[1].arena.addr(3), 100, &first);
  ASSERT_EQ(first.code, GASNET_OK);
  EXPECT_FALSE(first.done);
  ASSERT_EQ(world.pending(), 1u);
  EXPECT_EQ(world.message(0).type(), kMove);
  world.deliver();
  ASSERT_EQ(world.pending(), 1u);
  EXPECT_EQ(world.message(0).type(), kReply);
  EXPECT_EQ(world.message(0).lane, HYDRANT_LANE_REPLY);
  world.deliver();
  EXPECT_FALSE(first.done) << "callbacks wait for poll()";
  hydrant_remote_poll(world[0].end);
  ASSERT_TRUE(first.held());
  EXPECT_EQ(first.pin.region->addr, world[1].arena.addr(3));
  // The key is the target's registration.
  EXPECT_NE(world[1].registrar.serial_of(first.pin.region->key), 0u);
  for (int i = 0; i < 10; ++i) {
    RemoteResult again;
    remote_pin(world, 0, 1, world[1].arena.addr(3) + 50, 4000, &again);
    ASSERT_TRUE(again.held());
    EXPECT_EQ(hydrant_remote_release(again.pin), GASNET_OK);
  }
  EXPECT_EQ(hydrant_remote_release(first.pin), GASNET_OK);
  EXPECT_EQ(world.pending(), 0u);
  EXPECT_EQ(world[0].sent[0], 1u);
  EXPECT_EQ(world[1].sent[1], 1u);
  EXPECT_EQ(world.stats(0).moves, 1u);
  EXPECT_EQ(world.stats(1).exports, 1u);
}

TEST(RemotePinService, RequestsJoinAMoveThatIsUnderWay) {
  RemotePinCluster world(exact());
  RemoteResult a, b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  remote_pin(world, 0, 1, world[1].arena.addr(3) + 8, 8, &b);
  EXPECT_EQ(world.pending(), 1u);
  world.settle();
  ASSERT_TRUE(a.held());
  ASSERT_TRUE(b.held());
  EXPECT_EQ(world.stats(0).moves, 1u);
  EXPECT_EQ(world.stats(0).joins, 1u);
  hydrant_remote_release(a.pin);
  hydrant_remote_release(b.pin);
}

TEST(RemotePinService, RecallOfAnIdleFirehoseTakesOneRoundTrip) {
  RemotePinCluster world(exact());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.settle();
  ASSERT_TRUE(a.held());
  hydrant_remote_release(a.pin);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_ERR_NOT_READY);
  EXPECT_EQ(world[1].registrar.live(), 1u) << "until the peer has given it back";
  hydrant_remote_poll(world[1].end);
  ASSERT_EQ(world.pending(), 1u);
  EXPECT_EQ(world.message(0).type(), kRecall);
  world.deliver();
  ASSERT_EQ(world.pending(), 1u);
  EXPECT_EQ(world.message(0).type(), kRelease);
  world.deliver();
  EXPECT_EQ(world[1].registrar.live(), 0u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  RemoteResult b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
  EXPECT_FALSE(b.held()) << "what was taken back is not hit";
  world.settle();
  ASSERT_TRUE(b.held());
  hydrant_remote_release(b.pin);
}

TEST(RemotePinService, RecallWaitsForHolds) {
  RemotePinCluster world(exact());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.settle();
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  world.settle();
  EXPECT_EQ(world[1].registrar.live(), 1u);
  EXPECT_EQ(world.stats(1).zombies, 1u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_ERR_NOT_READY);
  RemoteResult b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
  world.settle();
  ASSERT_TRUE(b.held());
  EXPECT_EQ(world[1].registrar.live(), 2u) << "the old registration and a new one";
  hydrant_remote_release(a.pin);
  world.settle();
  EXPECT_EQ(world[1].registrar.live(), 1u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  hydrant_remote_release(b.pin);
}

TEST(RemotePinService, RecallThatOvertakesTheReplyPoisonsIt) {
  RemotePinCluster world(exact());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.deliver();
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  hydrant_remote_poll(world[1].end);
  ASSERT_EQ(world.pending(), 2u);
  world.deliver(1);
  world.settle();
  ASSERT_TRUE(a.done);
  EXPECT_FALSE(a.held());
  EXPECT_EQ(a.status, GASNET_ERR_NOT_READY);
  EXPECT_EQ(world[1].registrar.live(), 0u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
}

TEST(RemotePinService, VictimsRideAlong) {
  RemotePinCluster::Settings settings = exact();
  settings.options.budget_bytes = 4 * kPage;
  settings.options.base_percent = 100;
  RemotePinCluster world(settings);
  for (size_t page = 0; page < 32; ++page) {
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(2 * page), kPage, &a);
    world.settle();
    ASSERT_TRUE(a.held()) << page;
    hydrant_remote_release(a.pin);
  }
  EXPECT_EQ(world.stats(0).moves, 32u);
  EXPECT_EQ(world.stats(0).releases_alone, 0u);
  EXPECT_EQ(world.stats(1).exports, 4u);
  EXPECT_EQ(world[0].sent[0], 32u);
}

TEST(RemotePinService, LeasesGrowWithUse) {
  RemotePinCluster::Settings settings = exact();
  settings.ranks = 4;
  settings.options.budget_bytes = 128 * kPage;
  RemotePinCluster world(settings);
  for (int round = 0; round < 4; ++round) {
    for (size_t page = 0; page < 60; ++page) {
      RemoteResult a;
      remote_pin(world, 0, 1, world[1].arena.addr(2 * page), kPage, &a);
      world.settle();
      ASSERT_TRUE(a.held()) << page;
      hydrant_remote_release(a.pin);
    }
  }
  EXPECT_EQ(world.stats(1).exports, 60u) << "a fixed split would have been 42 at most";
  EXPECT_GT(world.stats(0).hits, 100u);
}

TEST(RemotePinService, TargetsFunctionRunsBeforeTheReply) {
  RemotePinCluster::Settings settings = exact();
  settings.options.remote = [](void*, uint32_t, const hydrant_region_t* pinned,
                               hydrant_range_t asked, const void* args, size_t len, void* answer,
                               size_t room) -> size_t {
    if (pinned != nullptr) std::memcpy(reinterpret_cast<void*>(asked.addr), args, len);
    const char text[] = "there";
    if (room < sizeof text) return 0;
    std::memcpy(answer, text, sizeof text);
    return sizeof text;
  };
  for (const uint32_t flags : {0u, HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE}) {
    settings.options.flags = flags;
    RemotePinCluster world(settings);
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(5) + 16, 6, &a, HYDRANT_REMOTE_WRITE,
               HYDRANT_REMOTE_CALL, "hello", 6);
    world.settle();
    ASSERT_TRUE(a.held());
    EXPECT_EQ(a.called, 1);
    EXPECT_STREQ(reinterpret_cast<const char*>(a.answer.data()), "there");
    EXPECT_STREQ(reinterpret_cast<const char*>(world[1].arena.page(5)) + 16, "hello");
    hydrant_remote_release(a.pin);
  }
}

TEST(RemotePinService, RefusedPinIsReportedAndRemembered) {
  RemotePinCluster world(exact());
  RemoteResult a, b;
  world[1].registrar.refuse(world[1].arena.addr(7), kPage, HYDRANT_REMOTE_WRITE);
  remote_pin(world, 0, 1, world[1].arena.addr(7), kPage, &a);
  world.settle();
  ASSERT_TRUE(a.done);
  EXPECT_EQ(a.status, HYDRANT_ERR_REFUSED);
  remote_pin(world, 0, 1, world[1].arena.addr(7), kPage, &b);
  EXPECT_EQ(b.code, HYDRANT_ERR_REFUSED);
  EXPECT_EQ(world.stats(0).moves, 1u);
}

TEST(RemotePinService, DeadPeerFailsPinsInFlight) {
  RemotePinCluster world(exact());
  RemoteResult a, b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  hydrant_remote_peer_gone(world[0].end, 1);
  hydrant_remote_poll(world[0].end);
  ASSERT_TRUE(a.done);
  EXPECT_EQ(a.status, HYDRANT_ERR_BROKEN);
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
  EXPECT_EQ(b.code, HYDRANT_ERR_BROKEN);
  world.settle();
  hydrant_remote_peer_gone(world[1].end, 0);
  EXPECT_EQ(world.stats(1).exports, 0u);
}

TEST(RemotePinService, MessagesWaitForRoom) {
  RemotePinCluster world(exact());
  world.refuse_each(2);
  for (size_t page = 0; page < 16; ++page) {
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(2 * page), kPage, &a);
    world.settle();
    ASSERT_TRUE(a.held()) << page;
    hydrant_remote_release(a.pin);
  }
}

TEST(RemotePinService, InvalidCallsAreRejected) {
  RemotePinCluster world(exact());
  hydrant_pin_t pin{};
  hydrant_remote_call_t call{};
  call.args_len = 10;
  const uintptr_t addr = world[1].arena.addr(3);
  EXPECT_EQ(
      hydrant_remote_pin(world[0].end, 1, addr, kPage, HYDRANT_REMOTE_WRITE, nullptr, nullptr),
      GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_remote_pin(world[0].end, 1, addr, kPage, HYDRANT_REMOTE_WRITE, &call, &pin),
            GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_domain_destroy(world[0].domain, HYDRANT_FINI_UNPIN), GASNET_ERR_BAD_ARG)
      << "an end of remote pins is served from it";
  EXPECT_EQ(world.pending(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
