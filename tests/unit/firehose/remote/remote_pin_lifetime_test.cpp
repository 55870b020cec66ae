// The lifetime of ends: several in one process, their destruction with moves in flight, forks, peers that
// leave, and targets of other kinds.
#include "tests/support/child_process.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace hydrant::testing {
namespace {

TEST(RemotePinLifetime, InvalidHandlesAreNotInit) {
  hydrant_pin_t pin{};
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  hydrant_remote_t old = 0;
  {
    RemotePinCluster world(exact());
    old = world[0].end;
  }
  for (const hydrant_remote_t end : {hydrant_remote_t{0}, old, ~hydrant_remote_t{0}}) {
    EXPECT_EQ(hydrant_remote_pin(end, 1, 4096, 1, 0, nullptr, &pin), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_pin_status(hydrant_try_remote_pin(end, 1, 4096, 1, 0)), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_pin_status(hydrant_partial_remote_pin(end, 1, 4096, 1, 0)),
              GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_poll(end), -GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_quiet(end), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_evict(end, 1, 4096, 1), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_prefetch(end, 1, 4096, 1, 0), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_peer_gone(end, 1), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_deliver(end, 1, &pin, sizeof pin, nullptr), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_get_stats(end, &stats), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_destroy(end), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(hydrant_remote_max_args(end), 0u);
  }
}

// Two jobs in one process, over the same domain: messages of one do not affect the other.
TEST(RemotePinLifetime, EndpointsOfOneProcessAreIndependent) {
  RemotePinCluster a(exact()), b(exact(3));
  RemoteResult of_a, of_b;
  remote_pin(a, 0, 1, a[1].arena.addr(3), kPage, &of_a);
  remote_pin(b, 2, 1, b[1].arena.addr(3), kPage, &of_b);
  a.settle();
  b.settle();
  ASSERT_TRUE(of_a.held());
  ASSERT_TRUE(of_b.held());
  hydrant_invalidate(a[1].domain, a[1].arena.page(3), kPage);
  EXPECT_EQ(hydrant_remote_quiet(a[1].end), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_remote_quiet(b[1].end), GASNET_OK);
  hydrant_remote_release(of_a.pin);
  a.settle();
  EXPECT_EQ(hydrant_remote_quiet(a[1].end), GASNET_OK);
  EXPECT_EQ(b.stats(1).exports, 1u);
  hydrant_remote_release(of_b.pin);
}

// Both export memory of one domain.
TEST(RemotePinLifetime, BothEndpointsOfOneDomainAreNotified) {
  RemotePinCluster world(exact(2));
  RemotePinCluster other(exact(2));
  hydrant_remote_destroy(other[1].end);
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.max_message_bytes = 4096;
  static std::vector<std::byte> said;
  messenger.send = [](void*, uint32_t, uint32_t, void*, const void* bytes, size_t len) {
    const auto* first = static_cast<const std::byte*>(bytes);
    said.assign(first, first + len);
    return GASNET_OK;
  };
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.domain = world[1].domain;
  options.rank = 1;
  options.ranks = 2;
  options.messenger = &messenger;
  ASSERT_EQ(hydrant_remote_create(&options, &other[1].end), GASNET_OK);
  RemoteResult a, b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  remote_pin(other, 0, 1, world[1].arena.addr(3), kPage, &b);
  world.settle();
  other.deliver();
  ASSERT_EQ(hydrant_remote_deliver(other[0].end, 1, said.data(), said.size(), nullptr), GASNET_OK);
  hydrant_remote_poll(other[0].end);
  ASSERT_TRUE(a.held());
  ASSERT_TRUE(b.held());
  EXPECT_EQ(world[1].registrar.live(), 1u) << "one registration for both";
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_remote_quiet(other[1].end), GASNET_ERR_NOT_READY);
  hydrant_remote_release(a.pin);
  world.settle();
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  EXPECT_EQ(world[1].registrar.live(), 1u) << "the other's firehose";
  hydrant_remote_release(b.pin);
  hydrant_remote_destroy(other[1].end);
  other[1].end = 0;
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

TEST(RemotePinLifetime, DestroyCompletesEverythingInFlight) {
  for (int delivered = 0; delivered < 3; ++delivered) {
    RemotePinCluster world(exact());
    RemoteResult a, b, c;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);  // joins
    world.refuse(0, 1);
    remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &c);  // waits for budget
    for (int i = 0; i < delivered; ++i) world.deliver();
    world.rebuild();
    for (const RemoteResult* result : {&a, &b, &c}) {
      EXPECT_TRUE(result->done) << delivered;
      if (result->held()) {
        EXPECT_EQ(hydrant_remote_release(result->pin), GASNET_ERR_NOT_INIT);
      } else {
        EXPECT_EQ(result->status, GASNET_ERR_NOT_INIT);
      }
    }
    hydrant_flush(world[1].domain);
    EXPECT_EQ(world[1].registrar.live(), 0u);
    EXPECT_EQ(world[1].registrar.problems(), "");
  }
}

TEST(RemotePinLifetime, EndpointsCanBeRecreatedIndefinitely) {
  RemotePinCluster world(exact());
  for (int i = 0; i < 200; ++i) {
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
    world.settle();
    ASSERT_TRUE(a.held()) << i;
    hydrant_remote_release(a.pin);
    world.rebuild();
  }
  EXPECT_EQ(hydrant_flush(world[1].domain), GASNET_OK);
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

TEST(RemotePinLifetime, ForkedChildCannotUseTheEndpoint) {
  RemotePinCluster world(exact());
  RemoteResult held, under_way;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &held);
  world.settle();
  remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &under_way);
  const std::string child = run_in_child([&]() -> std::string {
    hydrant_pin_t pin{};
    if (hydrant_remote_pin(world[0].end, 1, world[1].arena.addr(3), 8, 0, nullptr, &pin) !=
        GASNET_ERR_NOT_INIT)
      return "a pin";
    if (hydrant_remote_poll(world[0].end) != -GASNET_ERR_NOT_INIT) return "a poll";
    if (hydrant_remote_quiet(world[1].end) != GASNET_ERR_NOT_INIT) return "quiet";
    if (hydrant_remote_destroy(world[0].end) != GASNET_ERR_NOT_INIT) return "the end";
    if (hydrant_remote_release(held.pin) == GASNET_OK) return "the release of the parent's pin";
    return "";
  });
  EXPECT_EQ(child, "");
  // The parent's pins are unaffected.
  world.settle();
  ASSERT_TRUE(under_way.held());
  EXPECT_EQ(hydrant_remote_release(under_way.pin), GASNET_OK);
  EXPECT_EQ(hydrant_remote_release(held.pin), GASNET_OK);
  hydrant_invalidate(world[1].domain, world[1].arena.page(0), 8 * kPage);
  world.settle();
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

// ---- peers that go ----------------------------------------------------------------------------------------

TEST(RemotePinLifetime, MessagesThatOutliveTheirPeerPinNothing) {
  RemotePinCluster world(exact(3));
  RemoteResult a, b;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.settle();
  ASSERT_TRUE(a.held());
  remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &b);
  ASSERT_EQ(world.pending(), 1u);
  EXPECT_EQ(hydrant_remote_peer_gone(world[1].end, 0), GASNET_OK);
  EXPECT_EQ(world.stats(1).exports, 0u);
  world.deliver();
  world.settle();
  EXPECT_EQ(world.stats(1).exports, 0u);
  EXPECT_EQ(world.stats(1).exported_bytes, 0u);
  hydrant_flush(world[1].domain);
  EXPECT_EQ(world[1].registrar.live(), 0u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
}

TEST(RemotePinLifetime, DeadPeerFreesItsRecalledExports) {
  RemotePinCluster world(exact());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.settle();
  hydrant_invalidate(world[1].domain, world[1].arena.page(3), kPage);
  world.settle();
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_ERR_NOT_READY);
  hydrant_remote_peer_gone(world[1].end, 0);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  EXPECT_EQ(world[1].registrar.live(), 0u);
}

TEST(RemotePinLifetime, FailedSendFailsOnlyThatPin) {
  for (const int code : {HYDRANT_ERR_BROKEN, GASNET_ERR_RESOURCE}) {
    RemotePinCluster world(exact());
    RemoteResult a, b;
    world.refuse(0, 1, code);
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
    EXPECT_EQ(a.code, code);
    world.settle();
    EXPECT_FALSE(a.done) << "the code reported it";
    EXPECT_EQ(world.stats(0).firehose_bytes, 0u);
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
    world.settle();
    ASSERT_TRUE(b.held());
    hydrant_remote_release(b.pin);
  }
}

// The reply comes later, from poll(): each request that joined the move then sends its own.
TEST(RemotePinLifetime, JoinedRequestsCompleteWhenTheMoveCannotBeSent) {
  RemotePinCluster world(exact());
  RemoteResult a, b;
  world.refuse(0, 1);
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
  EXPECT_EQ(a.code, GASNET_OK);
  EXPECT_EQ(b.code, GASNET_OK);
  world.refuse(0, 1, HYDRANT_ERR_BROKEN);
  world.settle();
  EXPECT_TRUE(a.done);
  EXPECT_EQ(a.status, HYDRANT_ERR_BROKEN);
  EXPECT_TRUE(b.done);
  if (b.held()) hydrant_remote_release(b.pin);
}

// ---- targets ----------------------------------------------------------------------------------------------

TEST(RemotePinLifetime, PagesOfATargetAreGrantedOneByOne) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_mode = HYDRANT_MODE_PAGE;
  RemotePinCluster world(settings);
  for (size_t page = 0; page < 8; ++page) {
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(page), kPage, &a);
    world.settle();
    ASSERT_TRUE(a.held());
    EXPECT_EQ(a.pin.region->addr, world[1].arena.addr(page));
    EXPECT_EQ(a.pin.region->len, kPage);
    hydrant_remote_release(a.pin);
  }
  EXPECT_EQ(world[1].registrar.live(), 8u);
  // Several pages have a key each, and a firehose has only one: the pin fails with a text, and nothing is
  // kept.
  RemoteResult b;
  remote_pin(world, 0, 1, world[1].arena.addr(20), 3 * kPage, &b);
  world.settle();
  EXPECT_TRUE(b.done);
  EXPECT_FALSE(b.held());
  hydrant_invalidate(world[1].domain, world[1].arena.page(0), 256 * kPage);
  world.settle();
  EXPECT_EQ(world.stats(1).exports, 0u);
  EXPECT_EQ(world[1].registrar.live(), 0u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
}

// Without keys a firehose may span several buckets; an invalidation of any of them recalls it.
TEST(RemotePinLifetime, PagesOfATargetWithoutKeysAreGrantedTogether) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_mode = HYDRANT_MODE_PAGE;
  settings.key_bytes = 0;
  RemotePinCluster world(settings);
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(20) + 5, 2 * kPage, &a);
  world.settle();
  ASSERT_TRUE(a.held());
  EXPECT_EQ(a.pin.region->addr, world[1].arena.addr(20));
  EXPECT_EQ(a.pin.region->len, 3 * kPage);
  EXPECT_EQ(world[1].registrar.live(), 3u);
  hydrant_invalidate(world[1].domain, world[1].arena.page(21), 1);
  world.settle();
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_ERR_NOT_READY);
  EXPECT_EQ(world[1].registrar.live(), 3u) << "while it is held";
  EXPECT_EQ(hydrant_pin_status(hydrant_try_remote_pin(world[0].end, 1, world[1].arena.addr(20),
                                                      kPage, HYDRANT_REMOTE_WRITE)),
            GASNET_ERR_NOT_READY);
  hydrant_remote_release(a.pin);
  world.settle();
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  EXPECT_EQ(world.stats(1).exports, 0u);
  hydrant_flush(world[1].domain);
  EXPECT_EQ(world[1].registrar.live(), 0u);
  EXPECT_EQ(world[1].registrar.problems(), "");
}

TEST(RemotePinLifetime, TargetsFunctionGetsAReplysRoom) {
  for (const uint32_t flags : {0u, HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE}) {
    RemotePinCluster::Settings settings = exact();
    settings.max_message_bytes = HYDRANT_REMOTE_MIN_MESSAGE_BYTES;
    settings.options.flags = flags;
    settings.options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t,
                                 const void*, size_t, void* answer, size_t room) -> size_t {
      std::memset(answer, 7, room);
      return room + 100;  // more than there is: cut
    };
    RemotePinCluster world(settings);
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a, HYDRANT_REMOTE_WRITE,
               HYDRANT_REMOTE_CALL);
    world.deliver();
    hydrant_remote_poll(world[1].end);
    ASSERT_EQ(world.pending(), 1u);
    EXPECT_LE(world.message(0).bytes.size(), HYDRANT_REMOTE_MIN_MESSAGE_BYTES);
    world.settle();
    ASSERT_TRUE(a.held());
    EXPECT_EQ(a.answer.size(), hydrant_remote_max_args(world[0].end));
    hydrant_remote_release(a.pin);
  }
}

TEST(RemotePinLifetime, ArgumentsMayBeWrittenInPlace) {
  static std::vector<std::byte> came;
  RemotePinCluster::Settings settings = exact();
  settings.options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t,
                               const void* args, size_t len, void*, size_t) -> size_t {
    const auto* first = static_cast<const std::byte*>(args);
    came.assign(first, first + len);
    return 0;
  };
  RemotePinCluster world(settings);
  hydrant_remote_call_t call{};
  call.flags = HYDRANT_REMOTE_CALL;
  call.make_args = [](void*, void* args, size_t room) -> size_t {
    std::memset(args, 9, room);
    return room + 1;  // cut
  };
  hydrant_pin_t pin{};
  ASSERT_EQ(hydrant_remote_pin(world[0].end, 1, world[1].arena.addr(3), 1, HYDRANT_REMOTE_READ,
                               &call, &pin),
            GASNET_OK);
  EXPECT_LE(world.message(0).bytes.size(), 4096u);
  world.settle();
  EXPECT_EQ(came.size(), hydrant_remote_max_args(world[0].end));
  EXPECT_EQ(came.back(), std::byte{9});
}

TEST(RemotePinLifetime, FunctionMayRunWithoutAPin) {
  static int ran = 0, pinned_at = 0;
  ran = pinned_at = 0;
  RemotePinCluster::Settings settings = exact();
  settings.options.remote = [](void*, uint32_t, const hydrant_region_t* pinned, hydrant_range_t,
                               const void*, size_t, void*, size_t) -> size_t {
    ++ran;
    pinned_at += pinned != nullptr;
    return 0;
  };
  RemotePinCluster world(settings);
  world[1].registrar.refuse(world[1].arena.addr(7), kPage, HYDRANT_REMOTE_WRITE);
  RemoteResult a, b;
  remote_pin(world, 0, 1, world[1].arena.addr(7), kPage, &a, HYDRANT_REMOTE_WRITE,
             HYDRANT_REMOTE_CALL_ANYWAY);
  world.settle();
  EXPECT_EQ(a.status, HYDRANT_ERR_REFUSED);
  EXPECT_EQ(a.called, 1);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(pinned_at, 0);
  world[1].registrar.refuse(world[1].arena.addr(9), kPage, HYDRANT_REMOTE_WRITE);
  remote_pin(world, 0, 1, world[1].arena.addr(9), kPage, &b, HYDRANT_REMOTE_WRITE,
             HYDRANT_REMOTE_CALL);
  world.settle();
  EXPECT_EQ(b.status, HYDRANT_ERR_REFUSED);
  EXPECT_EQ(b.called, 0);
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace hydrant::testing
