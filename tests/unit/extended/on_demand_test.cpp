// Local memory that cannot be pinned now, over a network whose adapter may support on-demand paging.
#include "extended/rma/pinned/on_demand.hpp"

#include "am/progress/waiting.hpp"
#include "tests/support/recording_registrar.hpp"
#include "tests/unit/extended/pinned_fixture.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {
namespace {

using test::pattern;

constexpr size_t kImplicitBytes = 100'000;

class OnDemand : public test::PinnedFixture {
 protected:
  void SetUp() override {
    PinnedFixture::SetUp();
    loop->pins.pages = true;
    loop->pins.refusal = Status::kNotReady;
    far = map(1 << 20);
    near = map(1 << 20);
    ASSERT_EQ(hydrant_prefetch(kPeer, far, kImplicitBytes), GASNET_OK);
    for (int i = 0; i < 20; ++i) poll_all();
    before = on_demand_counts();
  }
  void TearDown() override {
    loop->pins.refuses = false;
    PinnedFixture::TearDown();
  }
  // Puts and gets `bytes` bytes; returns how many of the operations used the caller's own memory.
  size_t put_and_get(size_t bytes, unsigned seed) {
    loop->locals.clear();
    const std::vector<std::byte> wanted = pattern(bytes, seed);
    std::copy(wanted.begin(), wanted.end(), near);
    gex_Event_Wait(gex_RMA_PutNB(team(), kPeer, far, near, bytes, GEX_EVENT_DEFER, 0));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), far));
    std::memset(near, 0, bytes);
    gex_RMA_GetBlocking(team(), near, kPeer, far, bytes, 0);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), near));
    return static_cast<size_t>(
        std::count(loop->locals.begin(), loop->locals.end(), static_cast<const void*>(near)));
  }
  uint64_t uses() const { return on_demand_counts().ops - before.ops; }

  std::byte* far = nullptr;
  std::byte* near = nullptr;
  OnDemandCounts before;
};

TEST_F(OnDemand, IsUsedWhenPinsAreNotReady) {
  in_new_thread([&] {
    for (const Status refusal : {Status::kNotReady, Status::kResource}) {
      loop->pins.refuses = true;
      loop->pins.refusal = refusal;
      const OnDemandCounts at_first = on_demand_counts();
      EXPECT_EQ(put_and_get(kImplicitBytes, 1), 2u) << "a copy was made";
      EXPECT_EQ(put_and_get(kImplicitBytes, 2), 2u) << "a copy was made";
      EXPECT_EQ(on_demand_counts().ops - at_first.ops, 4u);
      EXPECT_EQ(on_demand_counts().bytes - at_first.bytes, 4 * kImplicitBytes);
    }
    EXPECT_EQ(loop->pins.implicit_keys, 2u) << "one for each direction, once";
  });
}

TEST_F(OnDemand, AShortageOfKeysPasses) {
  in_new_thread([&] {
    loop->pins.refuses = true;
    loop->pins.scarce_keys = 2;
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 0u) << "through buffers";
    EXPECT_TRUE(testing::wait_until([&] { return put_and_get(kImplicitBytes, 2) == 2; }));
    EXPECT_EQ(loop->pins.implicit_keys, 4u) << "each direction was tried again, once";
  });
}

TEST_F(OnDemand, IsNotUsedWhilePinningWorks) {
  in_new_thread([&] {
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 2u);
    EXPECT_EQ(loop->pins.implicit_keys, 0u);
    near = map(1 << 20);
    loop->pins.refuses = true;
    EXPECT_EQ(put_and_get(kImplicitBytes, 2), 2u);
    EXPECT_EQ(uses(), 2u);
    loop->pins.refuses = false;
    EXPECT_EQ(put_and_get(kImplicitBytes, 3), 2u);
    EXPECT_EQ(uses(), 2u) << "it could be pinned";
  });
}

// Such memory may be unmapped or read-only: a bounce buffer detects that without an adapter's fault.
TEST_F(OnDemand, IsNotUsedForMemoryThatCannotBePinned) {
  in_new_thread([&] {
    loop->pins.refuses = true;
    loop->pins.refusal = Status::kRefused;
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 0u);
    EXPECT_EQ(uses(), 0u);
    EXPECT_EQ(loop->pins.implicit_keys, 0u);
  });
}

TEST_F(OnDemand, SmallTransfersAreCopied) {
  in_new_thread([&] {
    loop->pins.refuses = true;
    EXPECT_EQ(put_and_get(8192, 1), 0u);
    EXPECT_EQ(uses(), 0u);
  });
}

TEST_F(OnDemand, CanBeDisabledByTheSetting) {
  choose({{"HYDRANT_IBV_ODP", "off"}});
  in_new_thread([&] {
    loop->pins.refuses = true;
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 0u);
    EXPECT_EQ(uses(), 0u);
    EXPECT_EQ(loop->pins.implicit_keys, 0u);
  });
}

TEST_F(OnDemand, WithoutSupportBuffersAreUsedAfterOneRequest) {
  loop->pins.pages = false;
  in_new_thread([&] {
    loop->pins.refuses = true;
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 0u);
    EXPECT_EQ(put_and_get(kImplicitBytes, 2), 0u);
    EXPECT_EQ(uses(), 0u);
    EXPECT_EQ(loop->pins.implicit_keys, 2u) << "one for each direction, once";
  });
}

// The peer has recalled its memory: messages carry the rest from the caller's memory.
TEST_F(OnDemand, RefusedOperationUsesMessages) {
  in_new_thread([&] {
    loop->pins.refuses = true;
    loop->refused_from_now = 1;
    EXPECT_EQ(put_and_get(kImplicitBytes, 1), 2u);
    EXPECT_EQ(loop->refused_from_now, 0u);
  });
}

}  // namespace
}  // namespace hydrant
