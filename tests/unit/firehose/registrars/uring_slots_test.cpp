#include "firehose/registrars/uring/uring_slots.hpp"

#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace hydrant {
namespace {

constexpr MemoryRange kRange{0x10000, 0x3000};

TEST(UringSlots, SinglesFillTheTableAndNeighboursStayTogether) {
  UringSlots slots;
  ASSERT_TRUE(slots.make(100));
  uint32_t slot = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(slots.take(1, &slot));
    EXPECT_EQ(slot, i);
  }
  EXPECT_FALSE(slots.take(1, &slot));
  slots.give(63, 2);
  ASSERT_TRUE(slots.take(1, &slot));
  const uint32_t first = slot;
  ASSERT_TRUE(slots.take(1, &slot));
  EXPECT_EQ(std::set<uint32_t>({first, slot}), std::set<uint32_t>({63, 64}));
  EXPECT_FALSE(slots.take(1, &slot));
}

TEST(UringSlots, RunsDoNotCrossBitmapWords) {
  UringSlots slots;
  ASSERT_TRUE(slots.make(128));
  uint32_t slot = 0;
  ASSERT_TRUE(slots.take(60, &slot));
  EXPECT_EQ(slot, 0u);
  ASSERT_TRUE(slots.take(8, &slot));
  EXPECT_EQ(slot, 64u);
  ASSERT_TRUE(slots.take(56, &slot));
  EXPECT_EQ(slot, 72u);
  EXPECT_FALSE(slots.take(8, &slot));
  ASSERT_TRUE(slots.take(4, &slot));
  EXPECT_EQ(slot, 60u);
  slots.give(0, 128);
  ASSERT_TRUE(slots.take(64, &slot));
  ASSERT_TRUE(slots.take(64, &slot));
  EXPECT_FALSE(slots.take(1, &slot));
}

TEST(UringSlots, OnlyTheRightKeyRetiresARegistration) {
  UringSlots slots;
  ASSERT_TRUE(slots.make(8));
  uint32_t slot = 0;
  ASSERT_TRUE(slots.take(1, &slot));
  const UringRun run{slot, slots.publish(slot, kRange, 77)};
  EXPECT_EQ(run.generation % 2, 1u);
  uint64_t charge = 0;
  MemoryRange range;
  EXPECT_TRUE(slots.find(run, &range));
  EXPECT_EQ(range, kRange);
  EXPECT_FALSE(slots.retire({8, run.generation}, kRange, &charge));
  EXPECT_FALSE(slots.retire({slot, run.generation + 2}, kRange, &charge));
  EXPECT_FALSE(slots.retire({slot, run.generation + 1}, kRange, &charge));
  EXPECT_FALSE(slots.retire(run, {kRange.addr, 0x1000}, &charge));
  EXPECT_TRUE(slots.retire(run, kRange, &charge));
  EXPECT_EQ(charge, 77u);
  EXPECT_FALSE(slots.retire(run, kRange, &charge));
  EXPECT_FALSE(slots.find(run, &range));
  slots.give(slot, 1);
  // An even generation marks a free slot, also if it is the slot's current one.
  EXPECT_FALSE(slots.retire({slot, run.generation + 1}, kRange, &charge));
}

TEST(UringSlots, ThreadsNeverShareASlot) {
  constexpr uint32_t kSlots = 12, kThreads = 4, kEach = 3;
  UringSlots slots;
  ASSERT_TRUE(slots.make(kSlots));
  std::atomic<int> owners[kSlots] = {};
  std::atomic<int> wrong{0};
  testing::Threads threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.start([&] {
      for (int round = 0; round < 3000; ++round) {
        uint32_t mine[kEach];
        for (uint32_t& slot : mine) {
          if (!slots.take(1, &slot)) {
            ++wrong;
            return;
          }
          if (owners[slot].fetch_add(1) != 0) ++wrong;
        }
        for (const uint32_t slot : mine) {
          const UringRun run{slot, slots.publish(slot, kRange, 0)};
          uint64_t charge = 0;
          if (!slots.retire(run, kRange, &charge)) ++wrong;
          owners[slot].fetch_sub(1);
          slots.give(slot, 1);
        }
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace hydrant
