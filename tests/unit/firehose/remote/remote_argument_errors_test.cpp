// Arguments that the interface of remote pins refuses, with texts that name the request and the limit.
#include "firehose/remote/channel/remote_wire.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

namespace hydrant::testing {
namespace {

::testing::AssertionResult says(std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (std::strstr(hydrant_error_text(), word) == nullptr)
      return ::testing::AssertionFailure() << "no \"" << word << "\" in: " << hydrant_error_text();
  }
  return ::testing::AssertionSuccess();
}

TEST(RemoteArgumentErrors, InvalidRequestsAreRejectedWithoutAMove) {
  constexpr uint32_t kRead = HYDRANT_REMOTE_READ;
  RemotePinCluster world(exact());
  hydrant_pin_t pin{};
  const uintptr_t addr = world[1].arena.addr(0);
  const auto ask = [&](uint32_t peer, uintptr_t at, size_t len, uint32_t access) {
    return hydrant_remote_pin(world[0].end, peer, at, len, access, nullptr, &pin);
  };
  EXPECT_EQ(ask(0, addr, 1, kRead), GASNET_ERR_BAD_ARG) << "this rank";
  EXPECT_TRUE(says({"rank 0 of 2", "this process"}));
  EXPECT_EQ(ask(2, addr, 1, kRead), GASNET_ERR_BAD_ARG) << "no rank";
  EXPECT_TRUE(says({"no rank 2", "0 to 1", "this one is 0"}));
  EXPECT_EQ(ask(UINT32_MAX, addr, 1, kRead), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(ask(1, addr, 0, kRead), GASNET_ERR_BAD_ARG) << "nothing";
  EXPECT_EQ(ask(1, UINTPTR_MAX - 10, 100, kRead), GASNET_ERR_BAD_ARG) << "wraps around";
  EXPECT_EQ(ask(1, addr, 1, kRead | 16), GASNET_ERR_BAD_ARG) << "unknown right";
  EXPECT_EQ(ask(1, addr, size_t{2} << 30, kRead), GASNET_ERR_RESOURCE) << "longer than any";
  const std::vector<std::byte> args(hydrant_remote_max_args(world[0].end) + 1);
  hydrant_remote_call_t call{};
  call.args = args.data();
  call.args_len = args.size();
  const auto ask_with = [&] {
    return hydrant_remote_pin(world[0].end, 1, addr, 1, kRead, &call, &pin);
  };
  EXPECT_EQ(ask_with(), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"hydrant_remote_max_args"}));
  call = {};
  call.flags = HYDRANT_REMOTE_CALL | 8;
  EXPECT_EQ(ask_with(), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"0x9", "HYDRANT_REMOTE_CALL*"}));
  EXPECT_EQ(world.pending(), 0u);
}

// No peer keeps memory pinned that its owner must unpin before its release.
TEST(RemoteArgumentErrors, UnpinFirstMemoryIsGrantedOnlyWhereItIsCached) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_watch = HYDRANT_WATCH_NONE;
  settings.registrar_flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  RemotePinCluster world(settings);
  RemotePinCluster::Rank& owner = world[1];
  RemoteResult ordinary;
  remote_pin(world, 0, 1, owner.arena.addr(0), kPage, &ordinary);
  world.settle();
  ASSERT_TRUE(ordinary.done);
  EXPECT_EQ(ordinary.status, HYDRANT_ERR_REFUSED);
  EXPECT_EQ(owner.registrar.live(), 0u);

  ASSERT_EQ(hydrant_vouch(owner.domain, owner.arena.page(8), 4 * kPage), GASNET_OK);
  RemoteResult vouched;
  remote_pin(world, 0, 1, owner.arena.addr(8), 2 * kPage, &vouched);
  world.settle();
  ASSERT_TRUE(vouched.held());
  EXPECT_EQ(hydrant_invalidate(owner.domain, owner.arena.page(8), kPage), GASNET_ERR_NOT_READY);
  world.settle();
  EXPECT_EQ(hydrant_invalidate(owner.domain, owner.arena.page(8), kPage), GASNET_ERR_NOT_READY)
      << "the peer still uses it";
  hydrant_remote_release(vouched.pin);
  world.settle();
  EXPECT_EQ(hydrant_invalidate(owner.domain, owner.arena.page(8), kPage), GASNET_OK);
  EXPECT_EQ(owner.registrar.live(), 0u);
}

// The extra range that a peer wants speculatively is not granted: its owner may be about to release it.
TEST(RemoteArgumentErrors, UnpinFirstMemoryIsGrantedWithoutTheExtraRange) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_watch = HYDRANT_WATCH_NONE;
  settings.registrar_flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  RemotePinCluster world(settings);
  RemotePinCluster::Rank& owner = world[1];
  constexpr size_t kPages = 32;
  std::memset(owner.arena.page(0), 1, kPages * kPage);
  ASSERT_EQ(hydrant_vouch(owner.domain, owner.arena.page(0), kPages * kPage), GASNET_OK);
  RemoteResult first;
  remote_pin(world, 0, 1, owner.arena.addr(20), kPage, &first);
  world.settle();
  ASSERT_TRUE(first.held());
  hydrant_remote_release(first.pin);

  remote_wire::Move move{};
  move.number = 1000;
  move.asked_addr = move.min_addr = owner.arena.addr(8);
  move.asked_len = move.min_len = kPage;
  move.wanted_addr = move.min_addr;
  move.wanted_len = 4 * kPage;
  move.access = HYDRANT_REMOTE_WRITE;
  const remote_wire::Header header = remote_wire::header(remote_wire::Type::kMove);
  RemoteMessage message{0, 1, HYDRANT_LANE_REQUEST, {}};
  message.bytes.resize(sizeof header + sizeof move);
  std::memcpy(message.bytes.data(), &header, sizeof header);
  std::memcpy(message.bytes.data() + sizeof header, &move, sizeof move);
  world.inject(std::move(message));
  world.settle();
  EXPECT_EQ(owner.registrar.live(), 2u);
  EXPECT_EQ(owner.registrar.live_bytes(), 2 * kPage);
}

// An error, not "not now": the first request learns it from the peer's reply, later ones send nothing.
TEST(RemoteArgumentErrors, RequestBeyondTheLargestLeaseIsAnError) {
  RemotePinCluster::Settings settings = exact(3);
  settings.options.budget_bytes = 8 * kPage;
  settings.options.base_percent = 50;  // two peers: 2 pages each for sure, and 4 to be lent
  RemotePinCluster world(settings);
  RemoteResult first;
  RemoteResult joined;
  remote_pin(world, 0, 1, world[1].arena.addr(0), 7 * kPage, &first);
  remote_pin(world, 0, 1, world[1].arena.addr(0), 7 * kPage, &joined);
  ASSERT_EQ(first.code, GASNET_OK) << "under way: nothing is known of the peer yet";
  ASSERT_EQ(joined.code, GASNET_OK);
  world.settle();
  for (const RemoteResult* result : {&first, &joined}) {
    ASSERT_TRUE(result->done);
    EXPECT_EQ(result->status, GASNET_ERR_RESOURCE);
    EXPECT_FALSE(result->held());
  }
  const uint64_t sent = world[0].sent[HYDRANT_LANE_REQUEST];
  RemoteResult again;
  remote_pin(world, 0, 1, world[1].arena.addr(0), 6 * kPage + 1, &again);
  EXPECT_EQ(again.code, GASNET_ERR_RESOURCE);
  EXPECT_TRUE(says({"rank 1", "+24577)", "24576 bytes", "in pieces", "FIREHOSE_REMOTE_BUDGET"}));
  EXPECT_EQ(hydrant_remote_prefetch(world[0].end, 1, world[1].arena.addr(0), 7 * kPage,
                                    HYDRANT_REMOTE_WRITE),
            GASNET_ERR_RESOURCE);
  EXPECT_EQ(world[0].sent[HYDRANT_LANE_REQUEST], sent);
  RemoteResult fits;
  // More than its lease, which grows with requests.
  for (int i = 0; i < 3 && !fits.held(); ++i) {
    remote_pin(world, 0, 1, world[1].arena.addr(0), 6 * kPage, &fits);
    world.settle();
  }
  EXPECT_EQ(fits.status, GASNET_OK);
  if (fits.held()) hydrant_remote_release(fits.pin);
}

// The text of a reply names the limit: it is set when the callback runs.
TEST(RemoteArgumentErrors, ReplyTextNamesThePeersLimit) {
  RemotePinCluster::Settings settings = exact();
  settings.options.budget_bytes = 4 * kPage;
  settings.options.base_percent = 100;
  settings.options.flags = HYDRANT_REMOTE_INLINE_DONE;
  RemotePinCluster world(settings);
  std::string text;
  hydrant_remote_call_t call{};
  call.done = [](void* context, hydrant_pin_t, const hydrant_remote_outcome_t* outcome) {
    EXPECT_EQ(outcome->status, GASNET_ERR_RESOURCE);
    *static_cast<std::string*>(context) = hydrant_error_text();
  };
  call.context = &text;
  hydrant_pin_t pin{};
  ASSERT_EQ(hydrant_remote_pin(world[0].end, 1, world[1].arena.addr(0), 5 * kPage,
                               HYDRANT_REMOTE_READ, &call, &pin),
            GASNET_OK);
  world.settle();
  for (const char* word : {"rank 1", "+20480)", "16384 bytes", "FIREHOSE_REMOTE_BUDGET"})
    EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
}

// The peer's largest region is another limit, with another remedy.
TEST(RemoteArgumentErrors, RequestBeyondThePeersLargestRegionIsAnError) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_region_bytes = 4 * kPage;
  RemotePinCluster world(settings);
  RemoteResult first;
  remote_pin(world, 0, 1, world[1].arena.addr(0), 5 * kPage, &first);
  world.settle();
  EXPECT_EQ(first.status, GASNET_ERR_RESOURCE);
  RemoteResult again;
  remote_pin(world, 0, 1, world[1].arena.addr(0), 5 * kPage, &again);
  EXPECT_EQ(again.code, GASNET_ERR_RESOURCE);
  EXPECT_TRUE(says({"rank 1", "+20480)", "16384 bytes", "FIREHOSE_MAX_REGION_SIZE"}));
}

// An initiator that learned its lease before any reply knows the limit from the lease.
TEST(RemoteArgumentErrors, LeaseMessageTellsTheLimit) {
  RemotePinCluster::Settings settings = exact(3);
  settings.options.budget_bytes = 8 * kPage;
  settings.options.base_percent = 100;
  RemotePinCluster world(settings);
  RemoteResult held;
  remote_pin(world, 0, 2, world[2].arena.addr(0), 4 * kPage, &held);
  world.settle();
  ASSERT_TRUE(held.held());
  RemoteResult beyond;
  remote_pin(world, 0, 2, world[2].arena.addr(8), kPage, &beyond);
  EXPECT_EQ(beyond.code, GASNET_ERR_NOT_READY) << "held, and released one day";
  RemoteResult never;
  remote_pin(world, 0, 2, world[2].arena.addr(8), 5 * kPage, &never);
  EXPECT_EQ(never.code, GASNET_ERR_RESOURCE) << "whatever is released";
  hydrant_remote_release(held.pin);
}

TEST(RemoteArgumentErrors, OnlyAPeersFirehosesAreEvicted) {
  RemotePinCluster world(exact());
  EXPECT_EQ(hydrant_remote_evict(world[0].end, 0, 0, SIZE_MAX), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"rank 0 of 2", "this process"}));
  EXPECT_EQ(hydrant_remote_evict(world[0].end, 2, 0, SIZE_MAX), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"no rank 2", "0 to 1"}));
  EXPECT_EQ(hydrant_remote_evict(world[0].end, 1, 0, SIZE_MAX), GASNET_OK) << "it has none yet";
  EXPECT_EQ(world.pending(), 0u);
}

// Rights that only the memory's own process can use, hit or miss.
TEST(RemoteArgumentErrors, RightsThatAreNoRemoteOnesAreRefused) {
  RemotePinCluster world(exact());
  const uintptr_t addr = world[1].arena.addr(3);
  RemoteResult cached;
  remote_pin(world, 0, 1, addr, kPage, &cached, HYDRANT_ACCESS_ALL);
  world.settle();
  ASSERT_TRUE(cached.held());
  for (const size_t page : {3u, 5u}) {
    for (const uint32_t access : {uint32_t{HYDRANT_LOCAL_READ}, uint32_t{HYDRANT_LOCAL_WRITE}}) {
      const uintptr_t at = world[1].arena.addr(page);
      hydrant_pin_t pin{};
      EXPECT_EQ(hydrant_remote_pin(world[0].end, 1, at, 8, access, nullptr, &pin),
                GASNET_ERR_BAD_ARG);
      EXPECT_TRUE(says({"HYDRANT_REMOTE_READ", "HYDRANT_REMOTE_WRITE"}));
      EXPECT_EQ(pin.region, nullptr);
      EXPECT_EQ(hydrant_pin_status(hydrant_try_remote_pin(world[0].end, 1, at, 8, access)),
                GASNET_ERR_BAD_ARG);
      EXPECT_EQ(hydrant_pin_status(hydrant_partial_remote_pin(world[0].end, 1, at, 8, access)),
                GASNET_ERR_BAD_ARG);
      EXPECT_EQ(hydrant_remote_prefetch(world[0].end, 1, at, 8, access), GASNET_ERR_BAD_ARG);
    }
  }
  EXPECT_EQ(world.pending(), 0u);
  hydrant_remote_release(cached.pin);
}

// An invalid option is refused with a text that quotes its values.
TEST(RemoteArgumentErrors, OptionsThatCannotWorkAreRefusedWithTheirValues) {
  RemotePinCluster world(exact(3));
  const auto refused = [&](auto change, std::initializer_list<const char*> words) {
    hydrant_messenger_t messenger{};
    messenger.size = sizeof messenger;
    messenger.max_message_bytes = 4096;
    messenger.send = [](void*, uint32_t, uint32_t, void*, const void*, size_t) {
      return GASNET_OK;
    };
    hydrant_remote_options_t options;
    hydrant_remote_options_init(&options);
    options.domain = world[0].domain;
    options.rank = 1;
    options.ranks = 3;
    options.messenger = &messenger;
    change(options, messenger);
    hydrant_remote_t end = 4711;
    EXPECT_EQ(hydrant_remote_create(&options, &end), GASNET_ERR_BAD_ARG);
    EXPECT_EQ(end, 4711u);
    EXPECT_TRUE(says(words));
  };
  refused([](auto& o, auto&) { o.size = 3; }, {"size is 3"});
  refused([](auto& o, auto&) { o.messenger = nullptr; }, {"messenger is NULL"});
  refused([](auto&, auto& m) { m.size = 5; }, {"size is 5"});
  refused([](auto&, auto& m) { m.send = nullptr; }, {"send is NULL"});
  refused([](auto&, auto& m) { m.max_message_bytes = 100; }, {"100", "512"});
  refused([](auto& o, auto&) { o.rank = 3; }, {"rank = 3", "0 to 2"});
  refused([](auto& o, auto&) { o.ranks = 0; }, {"ranks = 0", "65536"});
  refused([](auto& o, auto&) { o.ranks = 65537; }, {"ranks = 65537", "65536"});
  refused([](auto& o, auto&) { o.flags = 4; }, {"0x4"});
  refused([](auto& o, auto&) { o.base_percent = 101; }, {"101"});
  refused([](auto& o, auto&) { o.budget_bytes = 1; }, {"budget_bytes = 1", "4096"});
  refused([](auto& o, auto&) { o.budget_bytes = kPage - 1; }, {"4095", "4096"});
  // Enough for one peer, and split between two.
  refused([](auto& o, auto&) { o.budget_bytes = kPage; }, {"50%", "2 peers", "4096"});
  refused([](auto& o, auto&) { o.budget_bytes = 2 * kPage - 2, o.base_percent = 100; },
          {"100%", "base_percent"});
}

TEST(RemoteArgumentErrors, UnknownSenderIsNamed) {
  RemotePinCluster world(exact(3));
  const uint64_t word = 0;
  const auto deliver = [&](uint32_t from) {
    return hydrant_remote_deliver(world[1].end, from, &word, sizeof word, nullptr);
  };
  EXPECT_EQ(deliver(9), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"no rank 9", "0 to 2", "this one is 1"}));
  EXPECT_EQ(deliver(1), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"rank 1 of 3", "this process"}));
  EXPECT_EQ(deliver(2), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"8 bytes from rank 2"}));
  EXPECT_EQ(hydrant_remote_peer_gone(world[1].end, 1), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_remote_peer_gone(world[1].end, 3), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(says({"no rank 3"}));
}

}  // namespace
}  // namespace hydrant::testing
