#include "firehose/base/trace/trace_ring.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace hydrant::testing {
namespace {

TraceRecord numbered(uint64_t number) {
  return {.start = number, .bytes = ~number, .number = number};
}

bool is_whole(const TraceRecord& record) {
  return record.start == record.number && record.bytes == ~record.number;
}

TEST(TraceRing, FollowsAModelOfAQueue) {
  std::mt19937_64 random(test_seed());
  auto ring = std::make_unique<TraceRing<16>>();
  std::deque<uint64_t> model;
  uint64_t next = 0;
  for (int round = 0; round < 20000; ++round) {
    for (uint64_t pushes = random() % 24; pushes > 0; --pushes) {
      const bool has_room = model.size() < 16;
      ASSERT_EQ(ring->push(numbered(next)), has_room);
      if (has_room) model.push_back(next);
      ++next;
      ASSERT_EQ(ring->used(), model.size());
    }
    if (random() % 3 == 0) continue;
    const size_t expected = model.size();
    const uint64_t drained = ring->drain([&](const TraceRecord& record) {
      ASSERT_FALSE(model.empty());
      EXPECT_EQ(record.number, model.front());
      EXPECT_TRUE(is_whole(record));
      model.pop_front();
    });
    ASSERT_EQ(drained, expected);
    ASSERT_TRUE(model.empty());
  }
  EXPECT_GT(ring->position(), 16u * 100);
}

TEST(TraceRing, RecordsPushedDuringADrainStayForTheNext) {
  auto ring = std::make_unique<TraceRing<8>>();
  ASSERT_TRUE(ring->push(numbered(0)));
  EXPECT_EQ(ring->drain([&](const TraceRecord&) { EXPECT_TRUE(ring->push(numbered(1))); }), 1u);
  EXPECT_EQ(ring->used(), 1u);
}

TEST(TraceRing, ConsumerInAnotherThreadSeesEveryRecordOnceAndInOrder) {
  constexpr uint64_t kRecords = 300'000;
  auto ring = std::make_unique<TraceRing<64>>();
  uint64_t expected = 0;
  bool is_ordered = true;
  Threads threads;
  threads.start([&] {
    for (uint64_t i = 0; i < kRecords;) {
      if (ring->push(numbered(i)))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  threads.start([&] {
    while (expected < kRecords) {
      const uint64_t drained = ring->drain([&](const TraceRecord& record) {
        is_ordered = is_ordered && record.number == expected && is_whole(record);
        ++expected;
      });
      if (drained == 0) std::this_thread::yield();
    }
  });
  threads.join();
  EXPECT_TRUE(is_ordered);
  EXPECT_EQ(ring->used(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
