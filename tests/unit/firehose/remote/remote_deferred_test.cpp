// Memory passed to the target's function stays registered until the function has returned and the reply was
// made, also if the peer sends false data or leaves.
#include "firehose/remote/channel/remote_wire.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace hydrant::testing {
namespace {

// Observations of the function of rank 1.
struct Seen {
  RemotePinCluster* world = nullptr;
  bool stop = false;  // wait in the function until let go
  std::atomic<bool> inside{false}, go{false};
  int calls = 0;
  bool registered = false;
};

size_t look(void* user, uint32_t, const hydrant_region_t* pinned, hydrant_range_t, const void*,
            size_t, void*, size_t) {
  auto& seen = *static_cast<Seen*>(user);
  ++seen.calls;
  seen.inside = true;
  if (seen.stop) {
    EXPECT_TRUE(wait_until([&] { return seen.go.load(); }));
  }
  const RecordingRegistrar& registrar = (*seen.world)[1].registrar;
  seen.registered = registrar.is_live(registrar.serial_of(pinned->key), pinned->addr, pinned->len,
                                      HYDRANT_REMOTE_WRITE);
  return 0;
}

RemotePinCluster::Settings looking(Seen* seen, uint32_t flags) {
  RemotePinCluster::Settings settings;
  settings.options.merge_bytes = 1;
  settings.options.stream_bytes = 1;
  settings.options.flags = flags;
  settings.options.remote = &look;
  settings.options.user = seen;
  return settings;
}

RemoteMessage release_of(uint64_t id) {
  const remote_wire::Header header = remote_wire::header(remote_wire::Type::kRelease, 1);
  RemoteMessage message{0, 1, HYDRANT_LANE_REQUEST, {}};
  message.bytes.resize(sizeof header + sizeof id);
  std::memcpy(message.bytes.data(), &header, sizeof header);
  std::memcpy(message.bytes.data() + sizeof header, &id, sizeof id);
  return message;
}

// The first export of an end: place 1, generation 1.
constexpr uint64_t kFirstId = uint64_t{1} << 32 | 1;

void ask(RemotePinCluster& world, RemoteResult* result) {
  remote_pin(world, 0, 1, world[1].arena.addr(0), kPage, result, HYDRANT_REMOTE_WRITE,
             HYDRANT_REMOTE_CALL);
}

void expect_nothing_exported(RemotePinCluster& world) {
  EXPECT_EQ(world.stats(1).exports, 0u);
  EXPECT_EQ(world.stats(1).exported_bytes, 0u);
  hydrant_flush(world[1].domain);
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

TEST(RemoteDeferred, GuessedIdReleasesNothingBeforeTheReply) {
  Seen seen;
  RemotePinCluster world(looking(&seen, 0));
  seen.world = &world;
  RemoteResult result;
  ask(world, &result);
  world.deliver();
  ASSERT_EQ(seen.calls, 0) << "it waits for poll";
  world.inject(release_of(kFirstId));
  world.deliver();
  EXPECT_EQ(world.stats(1).exports, 1u);
  hydrant_flush(world[1].domain);
  hydrant_remote_poll(world[1].end);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_TRUE(seen.registered);
  world.settle();
  ASSERT_TRUE(result.held());
  hydrant_remote_release(result.pin);
  // After the reply only the peer releases it.
  world.inject(release_of(kFirstId));
  world.deliver();
  expect_nothing_exported(world);
}

TEST(RemoteDeferred, DeadPeersDeferredMovesAreDropped) {
  Seen seen;
  RemotePinCluster world(looking(&seen, 0));
  seen.world = &world;
  RemoteResult result;
  ask(world, &result);
  world.deliver();
  ASSERT_EQ(hydrant_remote_peer_gone(world[1].end, 0), GASNET_OK);
  hydrant_remote_poll(world[1].end);
  EXPECT_EQ(seen.calls, 0);
  expect_nothing_exported(world);
  ASSERT_EQ(hydrant_remote_peer_gone(world[0].end, 1), GASNET_OK);
  world.settle();
  EXPECT_EQ(result.status, HYDRANT_ERR_BROKEN);
}

TEST(RemoteDeferred, DestroyReleasesDeferredMoves) {
  Seen seen;
  RemotePinCluster world(looking(&seen, 0));
  seen.world = &world;
  RemoteResult result;
  ask(world, &result);
  world.deliver();
  world.rebuild();
  EXPECT_EQ(seen.calls, 0);
  expect_nothing_exported(world);
}

// The peer leaves while the function runs in another thread, in poll or in delivery.
TEST(RemoteDeferred, ArgumentsOfTheFunctionOutliveThePeer) {
  for (const uint32_t flags : {0u, HYDRANT_REMOTE_INLINE_REMOTE}) {
    Seen seen;
    RemotePinCluster world(looking(&seen, flags));
    seen.world = &world;
    seen.stop = true;
    RemoteResult result;
    ask(world, &result);
    std::thread target([&] {
      world.deliver();
      hydrant_remote_poll(world[1].end);
    });
    ASSERT_TRUE(wait_until([&] { return seen.inside.load(); }));
    EXPECT_EQ(hydrant_remote_peer_gone(world[1].end, 0), GASNET_OK);
    hydrant_flush(world[1].domain);
    EXPECT_EQ(world[1].registrar.live(), 1u);
    seen.go = true;
    target.join();
    EXPECT_EQ(seen.calls, 1);
    EXPECT_TRUE(seen.registered);
    EXPECT_EQ(world[1].sent[HYDRANT_LANE_REPLY] + world[1].sent[HYDRANT_LANE_REQUEST], 0u)
        << "the peer that would get the reply has left";
    expect_nothing_exported(world);
    ASSERT_EQ(hydrant_remote_peer_gone(world[0].end, 1), GASNET_OK);
    world.settle();
  }
}

}  // namespace
}  // namespace hydrant::testing
