// Tests of the guest's device and the library's own verbs functions, without a fake.
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/verbs/device_counters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

namespace hydrant {
namespace {

using testing::DeviceCounters;
using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::PinnedMemory;
using testing::read_device_counters;
using testing::Told;

TEST(VerbsDevice, PortAndAddressAreChosen) {
  ibv::Port port;
  ASSERT_EQ(ibv::open_port("", &port), Status::kOk) << last_error_text();
  EXPECT_STREQ(port.name, "rxe0");
  EXPECT_TRUE(port.is_ethernet);
  EXPECT_EQ(port.gid_index, 1) << "the address must not be the link-local one";
  EXPECT_EQ(port.mtu, IBV_MTU_4096);
  EXPECT_GE(port.max_message_bytes, 1U << 20);
  close_ibv_device(port.device);
  EXPECT_EQ(ibv::open_port("rxe0:2", &port), Status::kUnsupported);
  EXPECT_EQ(ibv::open_port("mlx5_0", &port), Status::kUnsupported);
}

TEST(VerbsDevice, MemoryIsRegistered) {
  std::unique_ptr<IbvRegistrar> registrar;
  ASSERT_EQ(IbvRegistrar::open("rxe0", &registrar), Status::kOk) << last_error_text();
  const size_t page = read_machine_limits().page_bytes;
  void* mapped =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto first = reinterpret_cast<uintptr_t>(mapped);
  IbvKey key;
  auto* bytes = reinterpret_cast<std::byte*>(&key);
  ASSERT_EQ(registrar->pin({first, 2 * page}, Access::kLocalWrite | Access::kRemoteWrite, bytes),
            Status::kOk)
      << last_error_text();
  EXPECT_NE(key.mr, nullptr);
  EXPECT_EQ(registrar->unpin({first, 2 * page}, bytes), UnpinResult::kDone);

  // Read-only memory can be a source but not a target; unmapped memory can be neither.
  ASSERT_EQ(mprotect(mapped, 2 * page, PROT_READ), 0);
  EXPECT_EQ(registrar->pin({first, page}, Access::kRemoteRead, bytes), Status::kOk)
      << last_error_text();
  EXPECT_EQ(registrar->unpin({first, page}, bytes), UnpinResult::kDone);
  EXPECT_EQ(registrar->pin({first, page}, Access::kRemoteWrite, bytes), Status::kRefused);
  munmap(mapped, 2 * page);
  EXPECT_EQ(registrar->pin({first, page}, Access::kLocalRead, bytes), Status::kRefused);
  EXPECT_EQ(registrar->implicit_key(Access::kLocalRead, bytes), Status::kUnsupported);
}

uint64_t probes_of(IbvWorld& world) {
  return world[0].transport->counts().probes + world[1].transport->counts().probes;
}

// By the device's counters a put is a single write without a message.
TEST(VerbsDevice, APutSendsNoMessage) {
  IbvWorld world(2);
  world.connect(0, 1);
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
  PinnedMemory there(*world[1].transport, Access::kRemoteWrite, 4096);
  const PinnedOperations::Pinned remote = there.for_peer();
  const uint64_t probes = probes_of(world);
  const DeviceCounters before = read_device_counters();
  constexpr uint32_t kPuts = 10;
  for (uint32_t i = 0; i < kPuts; ++i) {
    Told told;
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), 1024, &told), Status::kOk);
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
    EXPECT_EQ(told.status, Status::kOk);
  }
  const DeviceCounters after = read_device_counters();
  EXPECT_EQ(after.sends, before.sends);
  // A packet for each write, repeated write and probe (the last two on a busy machine), and an
  // acknowledgement.
  EXPECT_GE(after.sent - before.sent, kPuts);
  EXPECT_LE(after.sent - before.sent,
            2 * (kPuts + after.repeated - before.repeated + probes_of(world) - probes));
}

TEST(VerbsDevice, FailedPeerIsDetected) {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 100'000'000;
  options.patience_ns = 1'000'000'000;
  IbvWorld world(2, options);
  world.connect(0, 1);
  world.ranks[1].reset();
  const uint64_t deadline = testing::in_seconds(30);
  ::testing::internal::CaptureStderr();
  while (world[0].transport->counts().lost == 0 && now_ns() < deadline) {
    world[0].transport->sleeping().sleep(deadline);
    world[0].poll();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1"));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace hydrant
