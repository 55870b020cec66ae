// Long puts and gets over several ports, by the stand-in: what moves by which port, order, and what is done
// without. What fails: ibv_rail_failures_test.cpp.
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::kMiB;
using testing::kStripe;
using testing::kTarget;
using testing::PinnedMemory;
using testing::rail_options;
using testing::Told;

class IbvRails : public testing::RailTest {};

TEST_F(IbvRails, EveryLengthAndAlignmentMoves) {
  add_devices(3, with_messages(70'000));
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 3));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  uint64_t striped = 0;
  for (const size_t bytes : {kStripe - 1, kStripe, kStripe + 1, size_t{100'003}, 3 * kStripe,
                             size_t{777'777}, kMiB - 5000}) {
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096 + 7}}) {
      if (offset + 13 + bytes + 1 > kMiB) continue;
      fill(here, bytes + offset);
      std::memset(there.data.get(), 0, there.bytes_);
      const PinnedOperations::Pinned to{remote.addr + offset, remote.key};
      ASSERT_EQ(put(world, to, here.local(13), bytes), Status::kOk) << last_error_text();
      EXPECT_EQ(std::memcmp(there.data.get() + offset, here.data.get() + 13, bytes), 0) << bytes;
      if (offset != 0) {
        EXPECT_EQ(there.data.get()[offset - 1], std::byte{0});
      }
      EXPECT_EQ(there.data.get()[offset + bytes], std::byte{0}) << bytes;
      std::memset(here.data.get(), 0, here.bytes_);
      ASSERT_EQ(get(world, to, here.local(13), bytes), Status::kOk) << last_error_text();
      EXPECT_EQ(std::memcmp(there.data.get() + offset, here.data.get() + 13, bytes), 0) << bytes;
      EXPECT_EQ(here.data.get()[12], std::byte{0});
      EXPECT_EQ(here.data.get()[13 + bytes], std::byte{0}) << bytes;
      if (bytes >= kStripe) striped += 2;
    }
  }
  EXPECT_EQ(world[0].transport->counts().striped, striped);
}

// Atomic operations use the first port, and nothing else goes from a rank to itself.
TEST_F(IbvRails, ConnectionOfARankWithItselfHasNone) {
  fake_verbs::Device device = fake_verbs::adapter();
  device.atomics = true;
  add_devices(2, device);
  IbvWorld world(1, rail_options());
  PinnedOperations& pinned = *world[0].transport->pinned();
  PinnedMemory memory(*world[0].transport, Access::kRemoteAtomic | Access::kLocalWrite, 4096);
  const PinnedOperations::Pinned word = memory.for_peer();
  Told told;
  ASSERT_EQ(world.insist([&] {
    return pinned.start_atomic(0, word, memory.local(64),
                               {PinnedOperations::Atomic::Kind::kFetchAdd, 1, 0}, &told);
  }),
            Status::kOk)
      << last_error_text();
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kOk);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 1U);
}

TEST_F(IbvRails, StripesAreEqualAndShortOperationsUseTheFirstRail) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  EXPECT_EQ(world[0].transport->rails(), 2U);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  fake_verbs::DeviceTraffic before[2] = {fake_verbs::traffic_of("fake0"),
                                         fake_verbs::traffic_of("fake1")};
  ASSERT_EQ(put(world, remote, here.local(), kStripe - 1), Status::kOk);
  EXPECT_EQ(fake_verbs::traffic_of("fake1").bytes, before[1].bytes);
  EXPECT_EQ(fake_verbs::traffic_of("fake1").reads, before[1].reads);
  before[0] = fake_verbs::traffic_of("fake0");
  ASSERT_EQ(put(world, remote, here.local(), kMiB), Status::kOk);
  // Each takes half of it, and a fence.
  EXPECT_EQ(fake_verbs::traffic_of("fake0").bytes - before[0].bytes, kMiB / 2 + 8);
  EXPECT_EQ(fake_verbs::traffic_of("fake1").bytes - before[1].bytes, kMiB / 2 + 8);
  EXPECT_EQ(fake_verbs::traffic_of("fake1").reads - before[1].reads, 1U);
  before[1] = fake_verbs::traffic_of("fake1");
  ASSERT_EQ(get(world, remote, here.local(), kMiB), Status::kOk);
  EXPECT_EQ(fake_verbs::traffic_of("fake1").bytes - before[1].bytes, kMiB / 2);
}

TEST_F(IbvRails, TwoPortsOfOneDeviceShareRegistrations) {
  fake_verbs::add_device({.name = "two0", .ports = 2});
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  EXPECT_EQ(fake_verbs::live().contexts, 2U) << "one of each rank";
  const size_t before = fake_verbs::live().mrs;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  EXPECT_EQ(fake_verbs::live().mrs, before + 2);
  fill(here, 1);
  ASSERT_EQ(put(world, there.for_peer(), here.local(), kMiB), Status::kOk);
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), kMiB), 0);
  EXPECT_EQ(world[0].transport->counts().striped, 1U);
}

TEST_F(IbvRails, MessageWaitsForAnEarlierStripedPut) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= 20; ++round) {
    const Lane lane = round % 2 == 0 ? Lane::kRequest : Lane::kReply;
    std::memset(here.data.get(), static_cast<int>(round), kMiB);
    world[1].inbox.then = [&](const Incoming&) {
      if (std::memcmp(there.data.get(), here.data.get(), kMiB) != 0) ++wrong;
    };
    Told told;
    fake_verbs::hold_device("fake1", true);
    ASSERT_EQ(world.insist([&] {
      return world[0].transport->pinned()->put(1, remote, here.local(), kMiB, &told);
    }),
              Status::kOk);
    EXPECT_EQ(world[0].transport->messages(1).post(1, lane, 1, nullptr, 0), Status::kNotReady);
    for (uint32_t i = 0; i < 50; ++i) {
      world.poll_all();
      ASSERT_EQ(world[0].try_send(1, lane, 1, "done"), Status::kNotReady) << round;
    }
    EXPECT_EQ(told.times, 0U);
    fake_verbs::hold_device("fake1", false);
    ASSERT_EQ(world.send(0, 1, lane, 1, "done"), Status::kOk);
    ASSERT_TRUE(world.arrived(1, round));
    EXPECT_EQ(told.times, 1U);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(IbvRails, MessageDoesNotWaitForAGet) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  Told told;
  const PinnedOperations::Pinned remote = there.for_peer();
  fake_verbs::hold_device("fake1", true);
  ASSERT_EQ(world[0].transport->pinned()->get(1, remote, here.local(), kMiB, &told), Status::kOk);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "done"), Status::kOk);
  ASSERT_TRUE(world.arrived(1, 1));
  EXPECT_EQ(told.times, 0U);
  fake_verbs::hold_device("fake1", false);
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kOk);
}

// The further rails have no channel that would wake a sleeper.
TEST_F(IbvRails, NoSleepWhileStripesAreInFlight) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  Told told;
  const PinnedOperations::Pinned remote = there.for_peer();
  ASSERT_EQ(world[0].transport->pinned()->get(1, remote, here.local(), kMiB, &told), Status::kOk);
  for (uint32_t i = 0; told.times == 0 && i < 1000; ++i) {
    EXPECT_FALSE(world[0].transport->notices().arm_events());
    world[0].transport->sleeping().sleep(testing::in_seconds(10));
    world[0].poll();
  }
  EXPECT_EQ(told.times, 1U);
  EXPECT_EQ(world[0].transport->counts().sleeps, 0U);
}

TEST_F(IbvRails, SeveralStripedOperationsAreInFlight) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  fill(here, 9);
  constexpr size_t kBytes = 2 * kStripe;
  std::array<Told, 5> told;
  fake_verbs::hold(true);
  for (size_t i = 0; i < told.size(); ++i) {
    const PinnedOperations::Pinned to{remote.addr + i * kBytes, remote.key};
    ASSERT_EQ(world[0].transport->pinned()->put(1, to, here.local(i * kBytes), kBytes, &told.at(i)),
              Status::kOk)
        << i;
  }
  fake_verbs::hold(false);
  ASSERT_TRUE(world.until([&] { return told[4].times != 0; }));
  for (const Told& one : told) EXPECT_EQ(one.times, 1U);
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), told.size() * kBytes), 0);
  EXPECT_EQ(world[0].transport->counts().striped, 5U);
}

// Each put is begun before the message is tried again: without a turn of its own it would never leave.
TEST_F(IbvRails, StripedPutsDoNotStarveMessages) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::vector<Told> told(400);
  uint32_t sent = 0;
  for (Told& one : told) {
    ASSERT_EQ(world.insist([&] {
      return world[0].transport->pinned()->put(1, remote, here.local(), kStripe, &one);
    }),
              Status::kOk);
    if (world[0].try_send(1, Lane::kRequest, 1, "turn") == Status::kOk) ++sent;
    world.poll_all();
  }
  EXPECT_GE(sent, 100U);
  ASSERT_TRUE(world.until([&] { return told.back().times != 0; }));
  EXPECT_GE(world[0].transport->counts().striped, 100U);
  // A message that has left ends the turn of messages, if the last puts have given them one.
  ASSERT_EQ(world.insist([&] { return world[0].try_send(1, Lane::kRequest, 1, "last"); }),
            Status::kOk);
  // A refused message that is not retried delays striping for a short time only.
  fake_verbs::hold(true);
  Told first;
  ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), kStripe, &first),
            Status::kOk);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "gone"), Status::kNotReady);
  fake_verbs::hold(false);
  ASSERT_TRUE(world.until([&] { return first.times != 0; }));
  const uint64_t before = world[0].transport->counts().striped;
  for (uint32_t i = 0; i < 20; ++i)
    ASSERT_EQ(put(world, remote, here.local(), kStripe), Status::kOk);
  EXPECT_EQ(world[0].transport->counts().striped, before + 4);
}

TEST_F(IbvRails, OperationsBeyondTheQueuesComplete) {
  add_devices(3, with_messages(4096));
  IbvTransport::Options options = rail_options();
  options.send_depth = 16;
  IbvWorld world(2, options);
  ASSERT_TRUE(settle(world, 3));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  fill(here, 2);
  ASSERT_EQ(put(world, there.for_peer(), here.local(), kMiB), Status::kOk);
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), kMiB), 0);
  std::memset(here.data.get(), 0, kMiB);
  ASSERT_EQ(get(world, there.for_peer(), here.local(), kMiB), Status::kOk);
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), kMiB), 0);
}

TEST_F(IbvRails, RanksWithMoreAndFewerPortsUseTheSmallerNumber) {
  add_devices(4);
  const std::array<const char*, 3> ports = {"*", "fake0", " fake0, fake1 "};
  for (Rank a = 0; a < ports.size(); ++a) {
    for (Rank b = 0; b < ports.size(); ++b) {
      const uint32_t counts[] = {4, 1, 2};
      IbvWorld world(0);
      IbvTransport::Options options = rail_options();
      for (Rank rank = 0; rank < 2; ++rank) {
        options.ports = ports.at(rank == 0 ? a : b);
        world.ranks.push_back(std::make_unique<testing::IbvRank>(world.box, rank, 2, options));
        ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
      }
      ASSERT_TRUE(settle(world, std::min(counts[a], counts[b]))) << a << b;
      for (Rank from = 0; from < 2; ++from) {
        PinnedMemory here(*world[from].transport, Access::kLocalWrite, kMiB);
        PinnedMemory there(*world[1 - from].transport, kTarget, kMiB);
        fill(here, 4);
        std::array<std::byte, 64> imported = {};
        import(there, *here.registrar, imported.data());
        Told told;
        ASSERT_EQ(world.insist([&] {
          return world[from].transport->pinned()->put(1 - from, {there.address(), imported.data()},
                                                      here.local(), kMiB, &told);
        }),
                  Status::kOk)
            << last_error_text();
        ASSERT_TRUE(world.until([&] { return told.times != 0; }));
        EXPECT_EQ(told.status, Status::kOk);
        EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), kMiB), 0);
      }
    }
  }
}

TEST_F(IbvRails, PortThatIsDownIsSkipped) {
  fake_verbs::add_device({.name = "fake0"});
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  fake_verbs::add_device({.name = "fake1"});
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
}

TEST_F(IbvRails, ItemThatAddsNoPortIsWarnedAbout) {
  add_devices(1);
  IbvTransport::Options options = rail_options();
  options.ports = "fake7,fake0,*";
  ::testing::internal::CaptureStderr();
  const IbvWorld world(1, options);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text,
              HasSubstr("'fake7' of HYDRANT_IBV_PORTS adds no port: no verbs device 'fake7'"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("'*'")));
}

TEST_F(IbvRails, RailsOfDifferentSubnetsAreNotJoined) {
  for (const uint8_t subnet : {uint8_t{1}, uint8_t{2}, uint8_t{3}}) {
    fake_verbs::Gid gid;
    gid.gid.raw[7] = subnet;
    gid.gid.raw[15] = 1;
    static const char* const kNames[] = {"", "ib1", "ib2", "ib3"};
    fake_verbs::add_device(
        {.name = kNames[subnet], .ethernet = false, .lid = subnet, .gids = {gid}});
  }
  IbvWorld world(0);
  IbvTransport::Options options = rail_options();
  for (Rank rank = 0; rank < 2; ++rank) {
    options.ports = rank == 0 ? "ib1,ib2,ib3" : "ib1,ib3,ib2";
    world.ranks.push_back(std::make_unique<testing::IbvRank>(world.box, rank, 2, options));
  }
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(settle(world, 1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("another subnet"));
}

// The datagrams that report which ends can receive are lost, and a message opens the connection instead.
TEST_F(IbvRails, HandshakesRetryUntilRailsAreKnown) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  const std::string& bytes = world.box.endpoints["ibv1"];
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(bytes.data(), bytes.size())), &endpoint),
            Status::kOk);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "first"), Status::kNotReady);
  ASSERT_TRUE(world.until([&] { return world[1].transport->counts().handshakes != 0; }));
  fake_verbs::lose_datagrams(1000, endpoint.address.datagram_queue);
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "first"), Status::kOk);
  ASSERT_TRUE(world.arrived(1, 1));
  ASSERT_TRUE(world.until([&] { return world[0].transport->rails_with(1) == 2; }));
  EXPECT_EQ(world[1].transport->rails_with(0), 1U);
  EXPECT_EQ(world[1].try_send(0, Lane::kRequest, 1, "open"), Status::kOk);
  fake_verbs::lose_datagrams(0);
  ASSERT_TRUE(world.until([&] { return world[1].transport->rails_with(0) == 2; }));
}

TEST_F(IbvRails, ThreadsPutGetAndSendAtOnce) {
  add_devices(2);
  IbvTransport::Options options = rail_options();
  options.single_threaded = false;
  IbvWorld world(2, options);
  ASSERT_TRUE(settle(world, 2));
  constexpr uint32_t kThreads = 3;
  constexpr size_t kBytes = 2 * kStripe;
  PinnedMemory there(*world[1].transport, kTarget, kThreads * kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  const uint64_t deadline = testing::in_seconds(60);
  std::atomic<uint32_t> right{0};
  std::atomic<uint32_t> sent{0};
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      PinnedMemory here(*world[0].transport, Access::kLocalWrite, kBytes);
      testing::Inbox inbox;
      const PinnedOperations::Pinned mine{remote.addr + t * kBytes, remote.key};
      struct Flag : Completion {
        std::atomic<bool> is_over{false};
      };
      const auto finish = [&](auto begin) {
        Flag flag;
        flag.done = [](Completion& completion, Status) noexcept {
          static_cast<Flag&>(completion).is_over.store(true, std::memory_order_release);
        };
        Status status = Status::kNotReady;
        while ((status = begin(flag)) == Status::kNotReady && now_ns() < deadline)
          (void)world[0].transport->poll(inbox, 10, false);
        while (status == Status::kOk && !flag.is_over.load(std::memory_order_acquire) &&
               now_ns() < deadline)
          (void)world[0].transport->poll(inbox, 10, false);
      };
      for (uint32_t round = 0; round < 50; ++round) {
        std::memset(here.data.get(), static_cast<int>(round + t), kBytes);
        finish([&](Flag& flag) {
          return world[0].transport->pinned()->put(1, mine, here.local(), kBytes, &flag);
        });
        while (world[0].transport->messages(1).post(1, Lane::kRequest, 1, nullptr, 0) ==
                   Status::kNotReady &&
               now_ns() < deadline)
          (void)world[0].transport->poll(inbox, 10, false);
        ++sent;
        std::memset(here.data.get(), 0, kBytes);
        finish([&](Flag& flag) {
          return world[0].transport->pinned()->get(1, mine, here.local(), kBytes, &flag);
        });
        if (here.data.get()[0] == static_cast<std::byte>(round + t) &&
            here.data.get()[kBytes - 1] == static_cast<std::byte>(round + t))
          ++right;
      }
    });
  }
  threads.emplace_back([&] {
    while (!ends.load() && now_ns() < deadline) world[1].poll();
  });
  for (uint32_t t = 0; t < kThreads; ++t) threads[t].join();
  ends = true;
  threads.back().join();
  EXPECT_EQ(right, kThreads * 50);
  EXPECT_TRUE(world.arrived(1, kThreads * 50));
}

}  // namespace
}  // namespace hydrant
