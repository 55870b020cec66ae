// Recalls of remote pins against all else that is in flight: each is acknowledged, and quiet() returns OK.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {
namespace {

size_t find(const RemotePinCluster& world, uint8_t type) {
  for (size_t i = 0; i < world.pending(); ++i) {
    if (world.message(i).type() == type) return i;
  }
  ADD_FAILURE() << "no message of type " << int{type};
  return 0;
}

// Polls between two checks of held firehoses: firehose/remote/initiator/peer_polls.cpp.
void poll_until_it_has_looked(RemotePinCluster& world, uint32_t rank) {
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    hydrant_remote_poll(world[rank].end);
  }
}

TEST(RemoteRecalls, RecallThatOvertakesItsReplyIsAcknowledged) {
  RemotePinCluster world(exact());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.deliver();
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  hydrant_remote_poll(world[1].end);
  world.deliver(find(world, kRecall));
  poll_until_it_has_looked(world, 0);
  world.deliver(find(world, kReply));
  world.settle();
  EXPECT_EQ(a.status, GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  EXPECT_EQ(world.stats(1).exports, 0u);
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
