// Messages that no end of this protocol sends: truncated, with flipped bits, random, and false ones.
#include "firehose/remote/channel/remote_wire.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace hydrant::testing {
namespace {

using namespace remote_wire;

RemotePinCluster::Settings exact_and_small(uint32_t ranks = 2) {
  RemotePinCluster::Settings settings = exact(ranks);
  settings.pages = 32;
  settings.options.budget_bytes = 16 * kPage;
  settings.options.max_peer_regions = 32;
  settings.options.max_firehoses = 64;
  return settings;
}

int deliver(RemotePinCluster& world, const RemoteMessage& message) {
  return hydrant_remote_deliver(world[message.to].end, message.from, message.bytes.data(),
                                message.bytes.size(),
                                message.lane == HYDRANT_LANE_REQUEST ? &world : nullptr);
}

template <typename... Parts>
std::vector<std::byte> bytes_of(const Parts&... parts) {
  std::vector<std::byte> out;
  const auto add = [&out](const void* part, size_t len) {
    const auto* first = static_cast<const std::byte*>(part);
    out.insert(out.end(), first, first + len);
  };
  (add(&parts, sizeof parts), ...);
  return out;
}

// A message of each type, as the ends really send it.
std::vector<RemoteMessage> samples() {
  RemotePinCluster world(exact_and_small());
  std::vector<RemoteMessage> all;
  const auto run = [&] {
    for (int quiet = 0; quiet < 3;) {
      int did = 0;
      while (world.pending() != 0) {
        all.push_back(world.message(0));
        world.deliver();
        did = 1;
      }
      for (uint32_t i = 0; i < 2; ++i) did += hydrant_remote_poll(world[i].end);
      quiet = did == 0 ? quiet + 1 : 0;
    }
  };
  for (size_t page = 0; page < 24; ++page) {  // more than there is: some ride along
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(page), kPage, &a, HYDRANT_REMOTE_WRITE,
               HYDRANT_REMOTE_CALL, "arguments", 10);
    run();
    if (a.held()) hydrant_remote_release(a.pin);
  }
  hydrant_invalidate(world[1].domain, world[1].arena.page(0), 32 * kPage);
  run();
  all.push_back(
      {1, 0, HYDRANT_LANE_REQUEST, bytes_of(header(Type::kLease), Lease{kPage, kPage, 9, 0})});
  all.push_back({1, 0, HYDRANT_LANE_REQUEST, bytes_of(header(Type::kReclaim), Amount{kPage})});
  all.push_back({0, 1, HYDRANT_LANE_REQUEST, bytes_of(header(Type::kLeaseRequest), Amount{kPage})});
  all.push_back({0, 1, HYDRANT_LANE_REQUEST,
                 bytes_of(header(Type::kAwait),
                          Await{world[1].arena.addr(0), kPage, HYDRANT_REMOTE_WRITE, 0})});
  all.push_back({1, 0, HYDRANT_LANE_REPLY, bytes_of(header(Type::kRoom), Room{kDue, 0})});
  std::vector<RemoteMessage> out;
  for (uint8_t type = 1; type <= 9; ++type) {
    const RemoteMessage* longest = nullptr;
    for (const RemoteMessage& message : all) {
      if (message.type() == type &&
          (longest == nullptr || message.bytes.size() > longest->bytes.size()))
        longest = &message;
    }
    if (longest == nullptr) {
      ADD_FAILURE() << "no message of type " << int{type};
    } else {
      out.push_back(*longest);
    }
  }
  return out;
}

// Both ends still work, and when both have forgotten each other no export is left.
void expect_sound(RemotePinCluster& world) {
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(30), kPage, &a);
  world.settle();
  EXPECT_TRUE(a.done || a.code != GASNET_OK);
  if (a.held()) {
    EXPECT_EQ(hydrant_remote_release(a.pin), GASNET_OK);
  }
  for (uint32_t i = 0; i < world.size(); ++i) {
    for (uint32_t peer = 0; peer < world.size(); ++peer) {
      if (peer != i) hydrant_remote_peer_gone(world[i].end, peer);
    }
  }
  world.settle();
  for (uint32_t i = 0; i < world.size(); ++i) {
    const hydrant_remote_stats_t stats = world.stats(i);
    EXPECT_EQ(stats.exports, 0u);
    EXPECT_EQ(stats.exported_bytes, 0u);
    EXPECT_EQ(stats.lent_bytes, 0u);
    hydrant_flush(world[i].domain);
    EXPECT_EQ(world[i].registrar.live(), 0u);
  }
}

TEST(RemoteMessages, MessageOfWrongLengthIsRejected) {
  for (const RemoteMessage& sample : samples()) {
    RemotePinCluster world(exact_and_small());
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
    world.settle();
    ASSERT_TRUE(a.held());
    for (size_t len = 0; len <= sample.bytes.size() + 40; ++len) {
      if (len == sample.bytes.size()) continue;
      RemoteMessage message = sample;
      message.bytes.resize(len);
      EXPECT_EQ(deliver(world, message), GASNET_ERR_BAD_ARG)
          << "type " << int{sample.type()} << ", " << len << " bytes";
    }
    EXPECT_EQ(world.stats(1).exports, 1u);
    EXPECT_EQ(world.stats(0).recalled, 0u);
    EXPECT_EQ(world.pending(), 0u);
    hydrant_remote_release(a.pin);
    expect_sound(world);
    EXPECT_EQ(world[1].registrar.problems(), "");
  }
}

TEST(RemoteMessages, WithAnyBitFlippedTheyDoNoDamage) {
  for (const RemoteMessage& sample : samples()) {
    for (size_t bit = 0; bit < sample.bytes.size() * 8; bit += 7) {
      SCOPED_TRACE(bit);
      RemotePinCluster world(exact_and_small());
      RemoteResult a, b;
      remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
      world.settle();
      remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &b);  // under way
      for (size_t other = bit; other < std::min(bit + 7, sample.bytes.size() * 8); ++other) {
        RemoteMessage message = sample;
        message.bytes[other / 8] ^= static_cast<std::byte>(1u << other % 8);
        const int code = deliver(world, message);
        EXPECT_TRUE(code == GASNET_OK || code == GASNET_ERR_BAD_ARG) << code;
        hydrant_remote_poll(world[message.to].end);
      }
      if (a.held()) hydrant_remote_release(a.pin);
      world.settle();
      EXPECT_TRUE(b.done);
      if (b.held()) hydrant_remote_release(b.pin);
      expect_sound(world);
    }
  }
}

TEST(RemoteMessages, RandomOnesDoNoDamage) {
  std::mt19937_64 random(7);
  RemotePinCluster world(exact_and_small(3));
  const int rounds = 30000;
  for (int i = 0; i < rounds; ++i) {
    RemoteMessage message{static_cast<uint32_t>(random() % 4), 1, HYDRANT_LANE_REQUEST, {}};
    message.bytes.resize(random() % 200);
    for (std::byte& byte : message.bytes) byte = static_cast<std::byte>(random());
    const size_t words = message.bytes.size() / 8;
    if (words != 0 && random() % 8 != 0) {
      const Header fixed = header(static_cast<Type>(random() % 11), random() % 4);
      std::memcpy(message.bytes.data(), &fixed, sizeof fixed);
    }
    for (size_t word = 1; word < words; ++word) {  // mostly small numbers, and addresses that exist
      const uint64_t values[] = {random() % 4, kPage, world[1].arena.addr(random() % 32),
                                 uint64_t{1} << (random() % 64)};
      std::memcpy(message.bytes.data() + word * 8, &values[random() % 4], 8);
    }
    const int code = deliver(world, message);
    ASSERT_TRUE(code == GASNET_OK || code == GASNET_ERR_BAD_ARG) << code;
    if (i % 16 == 0) world.settle();
  }
  world.settle();
  expect_sound(world);
}

TEST(RemoteMessages, ForeignReleaseIsIgnored) {
  RemotePinCluster world(exact_and_small(3));
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.deliver();
  Reply reply{};
  std::memcpy(&reply, world.message(0).bytes.data() + sizeof(Header), sizeof reply);
  world.settle();
  ASSERT_TRUE(a.held());
  EXPECT_EQ(
      deliver(world, {2, 1, HYDRANT_LANE_REQUEST, bytes_of(header(Type::kRelease, 1), reply.id)}),
      GASNET_OK);
  EXPECT_EQ(world.stats(1).exports, 1u);
  hydrant_remote_release(a.pin);
}

// The messenger reports a message's sender; its report may be wrong.
TEST(RemoteMessages, NonexistentSendersAreRejected) {
  RemotePinCluster world(exact_and_small());
  const std::vector<std::byte> ask = bytes_of(header(Type::kLeaseRequest), Amount{kPage});
  for (const uint32_t from : {1u, 2u, 1000u, UINT32_MAX}) {
    EXPECT_EQ(hydrant_remote_deliver(world[1].end, from, ask.data(), ask.size(), nullptr),
              GASNET_ERR_BAD_ARG)
        << from;
  }
  EXPECT_EQ(hydrant_remote_deliver(world[1].end, 0, nullptr, 8, nullptr), GASNET_ERR_BAD_ARG);
}

struct Lie {
  const char* what;
  void (*tell)(Reply* reply);
  bool is_one;  // else it may be true
};

TEST(RemoteMessages, ReplyThatDoesNotMatchTheRequestIsRejected) {
  const Lie lies[] = {
      {"the truth", [](Reply*) {}, false},
      {"another range", [](Reply* r) { r->addr += kPage; }, true},
      {"less", [](Reply* r) { r->len = 1; }, true},
      {"nothing", [](Reply* r) { r->len = 0; }, true},
      {"beyond the end", [](Reply* r) { r->len = SIZE_MAX; }, true},
      {"up to the end", [](Reply* r) { r->len = 0 - r->addr; }, true},
      {"for nothing", [](Reply* r) { r->charge = 0; }, true},
      {"for too much", [](Reply* r) { r->charge = 100 * kPage; }, true},
      {"an unknown status", [](Reply* r) { r->status = 12345; }, true},
      {"a negative status", [](Reply* r) { r->status = -1; }, true},
      {"no lease", [](Reply* r) { r->lease = 0; }, false},
      {"a huge lease", [](Reply* r) { r->lease = UINT64_MAX; }, false},
      {"an unknown id", [](Reply* r) { r->id = UINT64_MAX; }, false},
      {"all flags", [](Reply* r) { r->flags = UINT32_MAX; }, false},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.what);
    RemotePinCluster world(exact_and_small());
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
    world.deliver();
    RemoteMessage message = world.message(0);
    Reply reply{};
    std::memcpy(&reply, message.bytes.data() + sizeof(Header), sizeof reply);
    lie.tell(&reply);
    std::memcpy(message.bytes.data() + sizeof(Header), &reply, sizeof reply);
    EXPECT_EQ(deliver(world, message), GASNET_OK);
    EXPECT_EQ(deliver(world, message), GASNET_ERR_BAD_ARG) << "it is answered already";
    world.settle();  // the genuine reply arrives after the false one
    ASSERT_TRUE(a.done);
    EXPECT_EQ(a.held(), !lie.is_one);
    if (lie.is_one) {
      EXPECT_EQ(a.status, HYDRANT_ERR_BROKEN);
    }
    if (a.held()) hydrant_remote_release(a.pin);
    expect_sound(world);
  }
}

TEST(RemoteMessages, KeyOfWrongLengthIsRejected) {
  RemotePinCluster world(exact_and_small());
  RemoteResult a;
  remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &a);
  world.deliver();
  RemoteMessage message = world.message(0);
  Reply reply{};
  std::memcpy(&reply, message.bytes.data() + sizeof(Header), sizeof reply);
  reply.blob_len -= 1;
  reply.answer_len += 1;
  std::memcpy(message.bytes.data() + sizeof(Header), &reply, sizeof reply);
  EXPECT_EQ(deliver(world, message), GASNET_OK);
  world.settle();
  EXPECT_TRUE(a.done);
  EXPECT_FALSE(a.held());
  expect_sound(world);
}

}  // namespace
}  // namespace hydrant::testing
