// Blocking puts and gets between firehoses: the fast path, and the fallback if the network does not
// accept the operation or refuses it later.
#include "firehose/remote/initiator/remote_hit.hpp"
#include "tests/unit/extended/pinned_hit_fixture.hpp"

namespace hydrant {
namespace {

class RmaPinnedHit : public test::PinnedHitFixture {};

constexpr size_t kHitSizes[] = {1, 8, 64, 65, 4096, 100000};

TEST_F(RmaPinnedHit, IsOneOperationAndNoMessage) {
  in_new_thread([&] {
    warm();
    loop->without_key = 0;
    for (const size_t bytes : kHitSizes) {
      for (const bool is_put : {true, false}) {
        const uint64_t calls = loop->calls;
        const uint64_t before = hits();
        EXPECT_EQ(move(is_put, bytes, 1), "");
        EXPECT_EQ(loop->calls, calls + 1);
        EXPECT_EQ(hits(), before + 1);
      }
    }
    EXPECT_EQ(loop->without_key, 0u);
  });
}

// The completion object lies on the caller's stack: no memory is allocated.
TEST_F(RmaPinnedHit, AllocatesNoMemory) {
  in_new_thread([&] {
    warm();
    const auto* here = static_cast<const std::byte*>(__builtin_frame_address(0));
    loop->records.clear();
    EXPECT_EQ(move(true, 8, 1), "");
    EXPECT_EQ(move(false, 8, 2), "");
    for (const Completion* record : loop->records) {
      const auto* at = reinterpret_cast<const std::byte*>(record);
      EXPECT_TRUE(at < here && here - at < 65536) << "not on the stack of the calls";
    }
    EXPECT_FALSE(loop->records.empty());
  });
}

TEST_F(RmaPinnedHit, OperationNotAcceptedTakesTheSlowPath) {
  for (const Status refusal : {Status::kNotReady, Status::kRefused, Status::kUnsupported}) {
    in_new_thread([&] {
      warm();
      for (const size_t bytes : kHitSizes) {
        for (const bool is_put : {true, false}) {
          loop->refusal = refusal;
          loop->refused_call = loop->calls + 1;
          const uint64_t refused = refused_operation_count();
          EXPECT_EQ(move(is_put, bytes, 3), "") << status_name(refusal);
          EXPECT_EQ(refused_operation_count(), refused + (refusal == Status::kNotReady ? 0 : 1));
          loop->refusal = Status::kOk;
        }
      }
    });
  }
}

TEST_F(RmaPinnedHit, OperationRefusedLaterTakesTheSlowPath) {
  in_new_thread([&] {
    warm();
    for (const size_t bytes : kHitSizes) {
      for (const bool is_put : {true, false}) {
        for (const uint32_t times : {1u, 2u}) {
          const uint64_t refused = refused_operation_count();
          loop->refused_from_now = times;
          EXPECT_EQ(move(is_put, bytes, 4), "");
          EXPECT_EQ(loop->refused_from_now, 0u);
          EXPECT_EQ(refused_operation_count(), refused + times);
        }
      }
    }
  });
}

TEST_F(RmaPinnedHit, MemoryPinnedOnOneEndTakesTheSlowPath) {
  in_new_thread([&] {
    warm();
    std::byte* const pinned = near_;
    const uint64_t refused = refused_operation_count();
    near_ = map(kArea);
    for (const size_t bytes : kHitSizes) {
      const uint64_t found = statistics().hits;
      EXPECT_EQ(move(true, bytes, 5), "");
      EXPECT_EQ(move(false, bytes, 6), "");
      EXPECT_EQ(statistics().hits, found + 2) << "each was found once: " << bytes;
    }
    near_ = pinned;
    far_ = map(kArea);
    for (const size_t bytes : kHitSizes) {
      EXPECT_EQ(move(true, bytes, 7), "");
      EXPECT_EQ(move(false, bytes, 8), "");
    }
    EXPECT_EQ(refused_operation_count(), refused);
  });
}

// Two firehoses on pages of one block of the thread's table: one of them uses the second slot.
TEST_F(RmaPinnedHit, NeighbouringSmallFirehosesAreBothCached) {
  in_new_thread([&] {
    constexpr size_t kBlock = 65536;
    std::byte* const all = map(2 * kBlock);
    const auto start = (reinterpret_cast<uintptr_t>(all) + kBlock - 1) / kBlock * kBlock;
    const uintptr_t places[] = {start, start + kBlock / 2};
    near_ = map_vouched(kArea);
    for (int i = 0; i < 2; ++i) {
      for (const uintptr_t place : places)
        gex_RMA_PutBlocking(team(), kPeer, reinterpret_cast<void*>(place), near_, 8, 0);
    }
    EXPECT_EQ(statistics().firehoses, 2u);
    for (const uintptr_t place : places) {
      const hydrant_pin_t pin =
          try_remote_hit(firehose().end, kPeer, place, 8, HYDRANT_REMOTE_WRITE);
      EXPECT_NE(pin.region, nullptr) << "page " << (place - start) / 4096;
      if (pin.region != nullptr) (void)hydrant_remote_release(pin);
    }
  });
}

}  // namespace
}  // namespace hydrant
