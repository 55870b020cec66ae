// Puts and gets between pinned memory over verbs. Runs over the fake on any machine, and over a real device
// in the guest.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::kMiB;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

class IbvOperations : public testing::VerbsTest {
 protected:
  static void fill(PinnedMemory& memory, size_t seed) {
    for (size_t i = 0; i < memory.bytes_; ++i)
      memory.data.get()[i] = static_cast<std::byte>(i * 13 + i / 251 + seed);
  }
  static Status put(IbvWorld& world, const PinnedOperations::Pinned& remote,
                    const PinnedOperations::Pinned& local, size_t bytes) {
    Told told;
    const Status begun = world.insist(
        [&] { return world[0].transport->pinned()->put(1, remote, local, bytes, &told); });
    if (begun != Status::kOk) return begun;
    EXPECT_TRUE(world.until([&] { return told.times != 0; }));
    EXPECT_EQ(told.times, 1U);
    return told.status;
  }
  static Status get(IbvWorld& world, const PinnedOperations::Pinned& remote,
                    const PinnedOperations::Pinned& local, size_t bytes) {
    Told told;
    const Status begun = world.insist(
        [&] { return world[0].transport->pinned()->get(1, remote, local, bytes, &told); });
    if (begun != Status::kOk) return begun;
    EXPECT_TRUE(world.until([&] { return told.times != 0; }));
    return told.status;
  }
};

TEST_F(IbvOperations, EveryLengthAndAlignmentMoves) {
  IbvWorld world(2);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{255}, size_t{256},
                             size_t{257}, size_t{4096}, size_t{65537}, kMiB - 16}) {
    fill(here, bytes);
    std::memset(there.data.get(), 0, there.bytes_);
    ASSERT_EQ(put(world, there.for_peer(5), here.local(3), bytes), Status::kOk)
        << last_error_text();
    EXPECT_EQ(std::memcmp(there.data.get() + 5, here.data.get() + 3, bytes), 0) << bytes;
    EXPECT_EQ(there.data.get()[4], std::byte{0});
    EXPECT_EQ(there.data.get()[5 + bytes], std::byte{0}) << bytes;
    std::memset(here.data.get(), 0, here.bytes_);
    ASSERT_EQ(get(world, there.for_peer(5), here.local(11), bytes), Status::kOk);
    EXPECT_EQ(std::memcmp(there.data.get() + 5, here.data.get() + 11, bytes), 0) << bytes;
    EXPECT_EQ(here.data.get()[11 + bytes], std::byte{0}) << bytes;
  }
}

TEST_F(IbvOperations, OperationBeyondTheDevicesMessageIsSplit) {
  IbvWorld world(2);
  const size_t most = world[0].transport->port().max_message_bytes;
  const size_t bytes = std::min<size_t>(2 * most + 4097, 64 * kMiB);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, bytes + 4095 - bytes % 4096 + 1);
  PinnedMemory there(*world[1].transport, kTarget, here.bytes_);
  fill(here, 1);
  ASSERT_EQ(put(world, there.for_peer(), here.local(), bytes), Status::kOk) << last_error_text();
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), bytes), 0);
  std::memset(here.data.get(), 0, here.bytes_);
  ASSERT_EQ(get(world, there.for_peer(), here.local(), bytes), Status::kOk);
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), bytes), 0);
}

TEST_F(IbvOperations, ShortPutsNeedNoLocalKeyAndCopyTheirSource) {
  IbvWorld world(2);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  const uint32_t most = world[0].transport->pinned()->keyless_bytes();
  ASSERT_GE(most, 8U);
  world.connect(0, 1);
  std::string source(most, 'a');
  Told told;
  const PinnedOperations::Pinned local{reinterpret_cast<uintptr_t>(source.data()), nullptr};
  ASSERT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), local, most, &told),
            Status::kOk);
  source.assign(most, 'b');
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(std::string(reinterpret_cast<char*>(there.data.get()), most), std::string(most, 'a'));
  source.resize(most + 1);
  EXPECT_EQ(world[0].transport->pinned()->put(1, there.for_peer(), local, most + 1, &told),
            Status::kBadArg);
}

TEST_F(IbvOperations, PutIsVisibleBeforeALaterMessage) {
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;
  IbvWorld world(2, options);
  constexpr size_t kBytes = 64 * 1024;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kBytes);
  PinnedMemory there(*world[1].transport, kTarget, kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  world.connect(0, 1);
  uint32_t wrong = 0;
  uint32_t round = 0;
  world[1].inbox.then = [&](const Incoming&) {
    const auto expected = static_cast<std::byte>(round);
    for (const size_t i : {size_t{0}, kBytes / 2, kBytes - 1}) {
      if (there.data.get()[i] != expected) ++wrong;
    }
  };
  for (round = 1; round <= 200; ++round) {
    std::memset(here.data.get(), static_cast<int>(round), kBytes);
    Told told;
    ASSERT_EQ(world.insist([&] {
      return world[0].transport->pinned()->put(1, remote, here.local(), kBytes, &told);
    }),
              Status::kOk);
    ASSERT_EQ(world.send(0, 1, round % 2 == 0 ? Lane::kRequest : Lane::kReply, 1, "done"),
              Status::kOk);
    ASSERT_TRUE(world.arrived(1, round));
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(IbvOperations, OperationsInFlightAreLimitedByTheQueue) {
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 48;  // not a power of two
  IbvWorld world(2, options);
  constexpr size_t kBytes = 512;
  constexpr size_t kMax = 45;  // three entries are kept for messages
  constexpr size_t kPages = 48 * kBytes;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kPages);
  PinnedMemory there(*world[1].transport, kTarget, kPages);
  fill(here, 3);
  world.connect(0, 1);
  const PinnedOperations::Pinned remote = there.for_peer();
  for (uint32_t round = 0; round < 5; ++round) {
    std::memset(there.data.get(), 0, kPages);
    std::array<Told, kMax + 1> told;
    size_t taken = 0;
    for (; taken <= kMax; ++taken) {
      const size_t offset = std::min(taken, kMax - 1) * kBytes;
      const Status status = world[0].transport->pinned()->put(
          1, {remote.addr + offset, remote.key}, here.local(offset), kBytes, &told.at(taken));
      if (status == Status::kNotReady) break;
      ASSERT_EQ(status, Status::kOk) << taken;
    }
    // An unsignaled message may be in the queue at first.
    ASSERT_LE(taken, kMax);
    ASSERT_GE(taken, round == 0 ? kMax - 2 : kMax);
    ASSERT_TRUE(world.until([&] { return told.at(taken - 1).times != 0; }));
    for (size_t i = 0; i < taken; ++i) {
      EXPECT_EQ(told.at(i).times, 1U) << i;
      EXPECT_EQ(told.at(i).status, Status::kOk);
    }
    EXPECT_EQ(told.at(taken).times, 0U);
    EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), taken * kBytes), 0);
  }
}

TEST_F(IbvOperations, FragmentedOperationsAreLimited) {
  IbvTransport::Options options = IbvWorld::single();
  options.operations = 2;
  limit_messages(kMiB);
  IbvWorld world(2, options);
  EXPECT_EQ(world[0].transport->depth(), 2U);
  const size_t bytes = size_t{world[0].transport->port().max_message_bytes} + 4096;
  if (bytes > (1U << 24)) GTEST_SKIP() << "the device takes more in one message than is tested";
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, bytes);
  PinnedMemory there(*world[1].transport, kTarget, bytes);
  fill(here, 3);
  world.connect(0, 1);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::array<Told, 3> told;
  const auto put = [&](Told& one) {
    return world[0].transport->pinned()->put(1, remote, here.local(), bytes, &one);
  };
  EXPECT_EQ(put(told[0]), Status::kOk);
  EXPECT_EQ(put(told[1]), Status::kOk);
  EXPECT_EQ(put(told[2]), Status::kNotReady);
  EXPECT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 8, nullptr), Status::kOk);
  ASSERT_TRUE(world.until([&] { return told[0].times + told[1].times == 2; }));
  EXPECT_EQ(put(told[2]), Status::kOk);
  ASSERT_TRUE(world.until([&] { return told[2].times != 0; }));
  EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), bytes), 0);
}

TEST_F(IbvOperations, FloodOfPutsAndMessagesEnds) {
  IbvTransport::Options options = IbvWorld::single();
  options.send_depth = 16;
  IbvWorld world(2, options);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, kTarget, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::vector<Told> told(1000);
  for (size_t i = 0; i < told.size(); ++i) {
    ASSERT_EQ(world.insist([&] {
      return i % 2 == 0
                 ? world[0].transport->pinned()->put(1, remote, here.local(), 8 + i, &told[i])
                 : world[0].transport->pinned()->get(1, remote, here.local(), 8 + i, &told[i]);
    }),
              Status::kOk);
    if (i % 5 == 0) {
      ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "message"), Status::kOk);
    }
  }
  ASSERT_TRUE(world.until([&] {
    for (const Told& one : told) {
      if (one.times == 0) return false;
    }
    return true;
  }));
  for (const Told& one : told) EXPECT_EQ(one.status, Status::kOk);
  EXPECT_TRUE(world.arrived(1, told.size() / 5));
}

TEST_F(IbvOperations, KeyWithoutTheRightFailsThePeer) {
  IbvWorld world(2);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, Access::kRemoteRead, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  EXPECT_EQ(put(world, remote, here.local(), 1024), Status::kRefused);
  Told told;
  EXPECT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 1024, &told),
            Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
}

TEST_F(IbvOperations, MemoryWithoutAKeyIsABadArgument) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  Told told;
  EXPECT_EQ(world[0].transport->pinned()->put(1, {}, here.local(), 8, &told), Status::kBadArg);
  EXPECT_EQ(world[0].transport->pinned()->get(1, here.local(), {}, 8, &told), Status::kBadArg);
  EXPECT_EQ(world[0].transport->memory().put(1, 0x1000, "x", 1, &told), Status::kUnsupported);
}

TEST_F(IbvOperations, ThreadsPutAndGetAtOnce) {
  IbvTransport::Options options = IbvWorld::single();
  options.single_threaded = false;
  IbvWorld world(2, options);
  constexpr size_t kBytes = 4096;
  constexpr uint32_t kThreads = 3;
  PinnedMemory there(*world[1].transport, kTarget, kThreads * kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  world.connect(0, 1);
  const uint64_t deadline = testing::in_seconds(60);
  std::atomic<uint32_t> right{0};
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
        // The fake's adapters carry out nothing between polls, but any poll suffices.
        while (status == Status::kOk && !flag.is_over.load(std::memory_order_acquire) &&
               now_ns() < deadline)
          (void)world[0].transport->poll(inbox, 10, false);
      };
      for (uint32_t round = 0; round < 200; ++round) {
        std::memset(here.data.get(), static_cast<int>(round + t), kBytes);
        finish([&](Flag& flag) {
          return world[0].transport->pinned()->put(1, mine, here.local(), kBytes, &flag);
        });
        std::memset(here.data.get(), 0, kBytes);
        finish([&](Flag& flag) {
          return world[0].transport->pinned()->get(1, mine, here.local(), kBytes, &flag);
        });
        if (here.data.get()[kBytes - 1] == static_cast<std::byte>(round + t)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * 200);
}

}  // namespace
}  // namespace hydrant
