// A device that goes away in the middle of puts: the network interface under it is deleted. The device stays
// as long as a process has it open, but sends nothing any more.
#include "tests/unit/rdma/ibv/ibv_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <unistd.h>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::kMiB;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

TEST(VerbsRemoval, EverythingPostedEndsWithANamedErrorAndTheDeviceIsLetGo) {
  ASSERT_EQ(std::system("ip link add dummy9 type dummy && ip link set dummy9 mtu 4500 && "
                        "ip addr add 10.99.0.1/24 dev dummy9 && ip link set dummy9 up && "
                        "rdma link add rxe9 type rxe netdev dummy9"),
            0);
  ::testing::internal::CaptureStderr();
  {
    IbvTransport::Options options = IbvWorld::single();
    options.ports = "rxe9";
    options.patience_ns = 1'000'000'000;
    IbvWorld world(2, options);
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
    PinnedMemory there(*world[1].transport, kTarget, kMiB);
    const PinnedOperations::Pinned remote = there.for_peer();
    PinnedOperations& pinned = *world[0].transport->pinned();
    std::deque<Told> posted;  // never moves its elements
    const auto under_way = [&] {
      return std::count_if(posted.begin(), posted.end(),
                           [](const Told& told) { return told.times == 0; });
    };
    // Keeps eight puts and gets under way.
    const auto post = [&] {
      if (under_way() >= 8) return Status::kNotReady;
      Told& told = posted.emplace_back();
      const Status status = posted.size() % 4 == 0
                                ? pinned.get(1, remote, here.local(), kMiB, &told)
                                : pinned.put(1, remote, here.local(), kMiB, &told);
      if (status != Status::kOk) posted.pop_back();
      return status;
    };
    for (int i = 0; i < 8; ++i) ASSERT_EQ(world.insist(post), Status::kOk) << last_error_text();
    // It waits until no process has the device open.
    ASSERT_EQ(std::system("ip link delete dummy9 &"), 0);
    EXPECT_TRUE(world.until([&] { return post() == Status::kBroken; }));
    EXPECT_THAT(last_error_text(), HasSubstr("rank 1 is gone"));
    EXPECT_TRUE(world.until([&] { return under_way() == 0; }));
    const auto is_done = [](const Told& told) { return told.status == Status::kOk; };
    EXPECT_TRUE(std::is_partitioned(posted.begin(), posted.end(), is_done));
    for (const Told& told : posted) {
      EXPECT_EQ(told.times, 1U);
      EXPECT_TRUE(is_done(told) || told.status == Status::kBroken) << to_c(told.status);
    }
    EXPECT_FALSE(is_done(posted.back()));
    EXPECT_EQ(world[0].transport->counts().lost, 1U);
    // The other side has sent nothing yet.
    EXPECT_TRUE(world.until(
        [&] { return world[1].try_send(0, Lane::kRequest, 1, "abcd") == Status::kBroken; }));
    EXPECT_THAT(last_error_text(), HasSubstr("rank 0 is gone"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1"));
  const uint64_t deadline = testing::in_seconds(20);
  while (access("/sys/class/infiniband/rxe9", F_OK) == 0 && now_ns() < deadline) usleep(10'000);
  EXPECT_NE(access("/sys/class/infiniband/rxe9", F_OK), 0) << "the device is still open";
}

}  // namespace
}  // namespace hydrant
