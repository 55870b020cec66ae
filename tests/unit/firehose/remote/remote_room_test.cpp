// An initiator whose pin was declined waits for a notification that there is room.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace hydrant::testing {
namespace {

RemotePinCluster::Settings waiting(std::vector<uint32_t>* told) {
  RemotePinCluster::Settings settings;
  settings.options.merge_bytes = settings.options.stream_bytes = 1;
  settings.domain_bytes = 4 * kPage;
  settings.options.budget_bytes = 4 * kPage;
  settings.options.base_percent = 100;
  settings.options.user = told;
  settings.options.room = [](void* user, uint32_t peer) {
    static_cast<std::vector<uint32_t>*>(user)->push_back(peer);
  };
  return settings;
}

// Takes all of rank 1's budget for itself.
hydrant_pin_t fill(RemotePinCluster& world) {
  return hydrant_pin(world[1].domain, world[1].arena.page(0), 4 * kPage, HYDRANT_LOCAL_WRITE);
}

void expect_declined(RemotePinCluster& world, size_t pages) {
  RemoteResult result;
  remote_pin(world, 0, 1, world[1].arena.addr(8), pages * kPage, &result);
  world.settle();
  ASSERT_TRUE(result.done);
  EXPECT_EQ(result.status, GASNET_ERR_NOT_READY);
}

int await(RemotePinCluster& world, size_t pages, uint32_t flags = 0) {
  return hydrant_remote_await_room(world[0].end, 1, world[1].arena.addr(8), pages * kPage,
                                   HYDRANT_REMOTE_WRITE, flags);
}

// The target checks for room at most every 20 us.
template <class Done>
void settle_until(RemotePinCluster& world, const Done& done) {
  for (int i = 0; i < 200'000 && !done(); ++i) world.settle();
}

TEST(RemoteRoom, WaitingPeerIsNotifiedOfRoomOnce) {
  std::vector<uint32_t> told;
  RemotePinCluster world(waiting(&told));
  const hydrant_pin_t mine = fill(world);
  expect_declined(world, 2);
  ASSERT_EQ(await(world, 2), GASNET_OK);
  const uint64_t sent = world[0].sent[HYDRANT_LANE_REQUEST];
  EXPECT_EQ(await(world, 2), GASNET_OK) << "a wait is registered already";
  EXPECT_EQ(await(world, 3), GASNET_OK) << "the shorter wait is notified first";
  EXPECT_EQ(world[0].sent[HYDRANT_LANE_REQUEST], sent);
  for (int i = 0; i < 100; ++i) world.settle();
  EXPECT_TRUE(told.empty());
  hydrant_release(mine);
  settle_until(world, [&] { return !told.empty(); });
  ASSERT_EQ(told, std::vector<uint32_t>{1});
  RemoteResult result;
  remote_pin(world, 0, 1, world[1].arena.addr(8), 2 * kPage, &result);
  world.settle();
  ASSERT_TRUE(result.held());
  hydrant_remote_release(result.pin);
  for (int i = 0; i < 100; ++i) world.settle();
  EXPECT_EQ(told.size(), 1u) << "no peer waits any more";
}

// Each reply is a message that arrives: it is the only event on which some clients poll.
TEST(RemoteRoom, ReplyAtOnceNeedsNoPollOfTheTarget) {
  std::vector<uint32_t> told;
  RemotePinCluster world(waiting(&told));
  const hydrant_pin_t mine = fill(world);
  expect_declined(world, 2);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(await(world, 2, HYDRANT_REMOTE_REPLY_AT_ONCE), GASNET_OK);
    EXPECT_EQ(await(world, 2, HYDRANT_REMOTE_REPLY_AT_ONCE), GASNET_OK);
    ASSERT_EQ(world.pending(), 1u) << "one at a time";
    world.deliver();
    ASSERT_EQ(world.pending(), 1u);
    EXPECT_EQ(world.message(0).lane, HYDRANT_LANE_REPLY);
    if (round == 1) hydrant_release(mine);
    world.deliver();
    EXPECT_EQ(told.size(), round == 2 ? 1u : 0u);
  }
  ASSERT_EQ(await(world, 2), GASNET_OK);
  world.deliver();
  world.deliver();
  EXPECT_EQ(told.size(), 2u) << "at once also without the flag, where there is room";
}

// A notification that finds no room in the messenger is sent by the next poll; a lost peer gets none.
TEST(RemoteRoom, RoomNotificationIsRetriedUntilSent) {
  std::vector<uint32_t> told;
  RemotePinCluster world(waiting(&told));
  world.refuse(0, 1);
  EXPECT_EQ(await(world, 2), GASNET_ERR_NOT_READY);
  ASSERT_EQ(await(world, 2), GASNET_OK) << "the first request was not sent";
  world.refuse(1, 1);
  world.deliver();
  EXPECT_EQ(world.pending(), 0u);
  world.settle();
  EXPECT_EQ(told.size(), 1u);
  const hydrant_pin_t mine = fill(world);
  ASSERT_EQ(await(world, 2), GASNET_OK);
  world.settle();
  EXPECT_EQ(hydrant_remote_peer_gone(world[1].end, 0), GASNET_OK);
  hydrant_release(mine);
  for (int i = 0; i < 100; ++i) world.settle();
  EXPECT_EQ(told.size(), 1u);
}

TEST(RemoteRoom, InvalidWaitsAreRejected) {
  RemotePinCluster world;
  const auto wait = [&](uint32_t peer, size_t len, uint32_t access, uint32_t flags) {
    return hydrant_remote_await_room(world[0].end, peer, world[1].arena.addr(0), len, access,
                                     flags);
  };
  EXPECT_EQ(wait(0, kPage, HYDRANT_REMOTE_READ, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(wait(2, kPage, HYDRANT_REMOTE_READ, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(wait(1, 0, HYDRANT_REMOTE_READ, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(wait(1, kPage, HYDRANT_LOCAL_READ, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(wait(1, kPage, HYDRANT_REMOTE_READ, 2), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(hydrant_error_text(), "HYDRANT_REMOTE_REPLY_AT_ONCE"), nullptr);
  EXPECT_EQ(world.pending(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
