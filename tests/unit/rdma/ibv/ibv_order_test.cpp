// Completed puts over adapters that keep writes, reorder them or execute them twice.
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_order_world.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

using fake_verbs::WriteOrder;
using testing::IbvWorld;
using testing::kMiB;
using testing::kTarget;
using testing::PinnedMemory;
using testing::rail_options;
using testing::Told;

constexpr size_t kOrderBytes = 4096;
constexpr WriteOrder kOrders[] = {WriteOrder::kOrdered, WriteOrder::kUnordered,
                                  WriteOrder::kRelaxed};

class IbvOrder : public testing::OrderTest {};

TEST_F(IbvOrder, MessageThatIsDeliveredShowsEarlierPuts) {
  for (const WriteOrder order : kOrders) {
    add_holding_devices(2, order);
    OwnAdapters world({"fake0", "fake1"});
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kOrderBytes);
    PinnedMemory there(*world[1].transport, kTarget, kOrderBytes);
    fill(here, 1);
    ASSERT_EQ(put(world, there.for_peer(), here.local(), kOrderBytes), Status::kOk);
    EXPECT_FALSE(is_there(here, there, kOrderBytes)) << "the stand-in keeps it";
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_TRUE(is_there(here, there, kOrderBytes)) << static_cast<uint32_t>(order);
  }
}

TEST_F(IbvOrder, ClassOfAnAdapterIsThatOfTheKnobOrOfItsVendor) {
  const auto order_of = [](uint32_t vendor) {
    fake_verbs::reset();
    fake_verbs::add_device({.vendor = vendor});
    IbvWorld world(1);
    return world[0].transport->pinned()->put_order();
  };
  constexpr uint32_t kNvidia = 0x2c9;
  EXPECT_EQ(order_of(0), PutOrder::kOrdered);
  EXPECT_EQ(order_of(kNvidia), PutOrder::kUnordered);
  {
    const ScopedEnv knob("HYDRANT_IBV_ORDER", "ordered");
    EXPECT_EQ(order_of(kNvidia), PutOrder::kOrdered);
  }
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  EXPECT_EQ(order_of(0), PutOrder::kRelaxed);
}

TEST_F(IbvOrder, MessageShowsPutsOverRailsWhoseReadsPassWrites) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "unordered");
  add_holding_devices(4, WriteOrder::kUnordered);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  for (size_t seed = 1; seed <= 3; ++seed) {
    fill(here, seed);
    ASSERT_EQ(put(world, remote, here.local(), kMiB), Status::kOk) << last_error_text();
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_TRUE(is_there(here, there, kMiB)) << seed;
  }
  EXPECT_EQ(world[0].transport->counts().striped, 3U);
}

TEST_F(IbvOrder, FailedWriteBeforeALateFenceEndsThePut) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "unordered");
  add_holding_devices(4, WriteOrder::kUnordered);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  ::testing::internal::CaptureStderr();
  fake_verbs::fail_work(IBV_WC_REM_ACCESS_ERR, 2);
  const Status status = put(world, there.for_peer(), here.local(), kMiB);
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status == Status::kRefused || status == Status::kBroken) << status_name(status);
}

TEST_F(IbvOrder, RelaxedAdaptersCutGetsAlone) {
  const ScopedEnv knob("HYDRANT_IBV_ORDER", "relaxed");
  add_holding_devices(4, WriteOrder::kRelaxed);
  OwnAdapters world({"fake0,fake1", "fake2,fake3"}, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kMiB);
  PinnedMemory there(*world[1].transport, kTarget, kMiB);
  const PinnedOperations::Pinned remote = there.for_peer();
  fill(here, 1);
  ASSERT_EQ(put(world, remote, here.local(), kMiB), Status::kOk) << last_error_text();
  EXPECT_EQ(world[0].transport->counts().striped, 0U);
  ASSERT_EQ(announce(world, 0, 1), Status::kOk);
  EXPECT_TRUE(is_there(here, there, kMiB));
  ASSERT_EQ(get(world, remote, here.local(), kMiB), Status::kOk);
  EXPECT_EQ(world[0].transport->counts().striped, 1U);
}

// A property of the stand-in.
TEST_F(IbvOrder, WriteThatIsSentAgainOverwritesLaterDataUnlessAdaptersKeepTheOrder) {
  for (const WriteOrder order : kOrders) {
    add_holding_devices(2, order);
    OwnAdapters world({"fake0", "fake1"});
    world.connect(0, 1);
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kOrderBytes);
    PinnedMemory there(*world[1].transport, kTarget, kOrderBytes);
    fill(here, 1);
    Told told;
    fake_verbs::lose_acknowledgement(pair_on("fake0"));
    ASSERT_EQ(
        world[0].transport->pinned()->put(1, there.for_peer(), here.local(), kOrderBytes, &told),
        Status::kOk);
    fake_verbs::hold_writes(false);
    ASSERT_TRUE(world.until([&] { return is_there(here, there, kOrderBytes); }));
    EXPECT_EQ(told.times, 0U);
    std::memset(there.data.get(), 0, kOrderBytes);
    fake_verbs::resend(pair_on("fake0"));
    ASSERT_TRUE(world.until([&] { return told.times != 0; }));
    ASSERT_EQ(announce(world, 0, 1), Status::kOk);
    EXPECT_EQ(is_there(here, there, kOrderBytes), order != WriteOrder::kOrdered);
  }
}

// Some adapters refuse one request and take the next.
TEST_F(IbvOrder, MessageBehindARefusedRequestDoesNotArriveAlone) {
  fake_verbs::reset();
  fake_verbs::add_device(fake_verbs::adapter());
  IbvWorld world(2);
  world.connect(0, 1);
  fake_verbs::fail_call(fake_verbs::Call::kPostSend, ENOMEM);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "first..."), Status::kOk);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 2, "second.."), Status::kOk);
  EXPECT_TRUE(world.until([&] { return world[0].transport->counts().lost != 0; }));
  world.poll_all();
  EXPECT_EQ(world[1].inbox.count, 0u);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 3, "third..."), Status::kBroken);
  (void)::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace hydrant
