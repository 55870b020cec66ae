// Two devices as rails, in a guest with two devices (setup_rails): their counters show the path of each
// operation.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/verbs/device_counters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

using testing::DeviceCounters;
using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::kMiB;
using testing::PinnedMemory;
using testing::read_device_counters;
using testing::Told;

constexpr uint32_t kPacket = 4096;

class VerbsRails : public ::testing::Test {
 protected:
  static IbvTransport::Options options() {
    IbvTransport::Options made = IbvWorld::single();
    made.ports = "rxe0,rxe1";
    return made;
  }
  static bool settle(IbvWorld& world) {
    world.connect(0, 1);
    return world.until([&] {
      return world[0].transport->rails_with(1) == 2 && world[1].transport->rails_with(0) == 2;
    });
  }
  static void fill(PinnedMemory& memory, size_t seed) {
    for (size_t i = 0; i < memory.bytes_; ++i)
      memory.data.get()[i] = static_cast<std::byte>(i * 13 + i / 251 + seed);
  }
};

TEST_F(VerbsRails, LongPutsAndGetsUseBothAndArriveComplete) {
  IbvWorld world(2, options());
  ASSERT_TRUE(settle(world));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 5 * kMiB);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite | Access::kRemoteRead, 5 * kMiB);
  const PinnedOperations::Pinned remote = there.for_peer(7);
  for (const size_t bytes : {kMiB, kMiB + 1, 3 * kMiB + 12'345, 5 * kMiB - 8}) {
    for (const bool is_put : {true, false}) {
      fill(here, bytes);
      fill(there, bytes + 1);
      const DeviceCounters before[2] = {read_device_counters("rxe0"), read_device_counters("rxe1")};
      Told told;
      IbvTransport& transport = *world[0].transport;
      ASSERT_EQ(is_put ? transport.pinned()->put(1, remote, here.local(3), bytes, &told)
                       : transport.pinned()->get(1, remote, here.local(3), bytes, &told),
                Status::kOk)
          << last_error_text();
      ASSERT_TRUE(world.until([&] { return told.times != 0; }));
      EXPECT_EQ(told.status, Status::kOk);
      EXPECT_EQ(std::memcmp(there.data.get() + 7, here.data.get() + 3, bytes), 0) << bytes;
      // Each device sends half of the packets, plus acknowledgements and retransmissions.
      const uint64_t half = bytes / 2 / kPacket;
      EXPECT_GE(read_device_counters("rxe0").sent - before[0].sent, half - 2);
      EXPECT_GE(read_device_counters("rxe1").sent - before[1].sent, half - 2);
    }
  }
  EXPECT_EQ(world[0].transport->counts().striped, 8U);
  EXPECT_EQ(world[0].transport->counts().lost, 0U);
}

TEST_F(VerbsRails, MessagesAndShortPutsUseOnlyTheFirst) {
  IbvWorld world(2, options());
  ASSERT_TRUE(settle(world));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  const DeviceCounters before = read_device_counters("rxe1");
  constexpr uint32_t kMessages = 64;
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), kMiB - 1, &told),
            Status::kOk);
  for (uint32_t i = 0; i < kMessages; ++i)
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "message"), Status::kOk);
  ASSERT_TRUE(world.arrived(1, kMessages));
  ASSERT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(world[0].transport->counts().striped, 0U);
  // Packets of the connection may still be repeated; half of the put are 128 packets, of the
  // messages 32.
  EXPECT_LT(read_device_counters("rxe1").sent - before.sent, 16U);
}

TEST_F(VerbsRails, APutArrivesBeforeALaterMessage) {
  IbvWorld world(2, options());
  ASSERT_TRUE(settle(world));
  constexpr size_t kBytes = 2 * kMiB;
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kBytes);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, kBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= 30; ++round) {
    std::memset(here.data.get(), static_cast<int>(round), kBytes);
    world[1].inbox.then = [&](const Incoming&) {
      if (std::memcmp(there.data.get(), here.data.get(), kBytes) != 0) ++wrong;
    };
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

TEST_F(VerbsRails, CutRailFailsThePeerAndIsNamed) {
  IbvTransport::Options short_of_patience = options();
  short_of_patience.patience_ns = 10'000'000;
  IbvWorld world(2, short_of_patience);
  ASSERT_TRUE(settle(world));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 2 * kMiB);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 2 * kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  ASSERT_EQ(std::system("ip link set dummy1 down"), 0);
  ::testing::internal::CaptureStderr();
  Told told;
  ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 2 * kMiB, &told),
            Status::kOk);
  EXPECT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rxe1 port 1"));
  EXPECT_EQ(told.status, Status::kBroken);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rxe1 port 1"));
  EXPECT_EQ(std::system("ip link set dummy1 up"), 0);
}

}  // namespace
}  // namespace hydrant
