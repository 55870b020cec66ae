#include "firehose/cache/index/region_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace hydrant {
namespace {

constexpr size_t kLen = 4096;
constexpr size_t kMaxRanges = 20'000;
constexpr size_t kBytesPerRange = 3 * sizeof(uint64_t);

MemoryRange nth(size_t n) { return {(n + 1) * 2 * kLen, kLen}; }

class RegionTableFill : public ::testing::Test {
 protected:
  RegionTableFill() { EXPECT_TRUE(table_.map(kMaxRanges)); }
  void insert(size_t n) { table_.insert(nth(n), static_cast<RegionIndex>(n + 1)); }
  void expect_all(size_t count) const {
    for (size_t n = 0; n < count; ++n) ASSERT_EQ(table_.find(nth(n).addr), n + 1);
  }
  // Bytes of the table to the bytes of the ranges in it.
  double cost(size_t count) const {
    return static_cast<double>(table_.memory_bytes()) / static_cast<double>(count * kBytesPerRange);
  }

  RegionTable table_;
};

TEST_F(RegionTableFill, AscendingOrderFillsTheChunks) {
  for (size_t n = 0; n < kMaxRanges; ++n) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(cost(kMaxRanges), 1.05);
}

TEST_F(RegionTableFill, DescendingOrderFillsTheChunks) {
  for (size_t n = kMaxRanges; n-- > 0;) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(cost(kMaxRanges), 1.05);
}

// Two streams from the middle outwards, and two that meet.
TEST_F(RegionTableFill, StreamsBetweenOthersFillTheChunks) {
  constexpr size_t kMiddle = kMaxRanges / 2;
  for (size_t n = 0; n < kMaxRanges / 4; ++n) {
    insert(kMiddle + n);
    insert(kMiddle - 1 - n);
  }
  for (size_t n = 0; n < kMaxRanges / 4; ++n) {
    insert(n);
    insert(kMaxRanges - 1 - n);
  }
  expect_all(kMaxRanges);
  EXPECT_LT(cost(kMaxRanges), 1.1);
}

TEST_F(RegionTableFill, RandomOrderLeavesAThirdFreeAtMost) {
  std::vector<size_t> order(kMaxRanges);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (const size_t n : order) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(cost(kMaxRanges), 1.4);
}

// In any order, the capacity that map() reserved suffices, and the table holds exactly the regions added.
TEST_F(RegionTableFill, InsertionsAndErasuresAtTheEdgesOfChunks) {
  std::mt19937_64 random(7);
  std::map<size_t, RegionIndex> model;
  for (int step = 0; step < 200'000; ++step) {
    // Runs up, runs down and single places, over and over in the same few thousand.
    size_t n = random() % 6000;
    const size_t run = random() % 4 == 0 ? random() % 150 : 1;
    const bool down = random() % 2 == 0;
    const bool erase = random() % 2 == 0;
    for (size_t i = 0; i < run && n < 6000; ++i, n = down ? n - 1 : n + 1) {
      const bool there = model.count(n) != 0;
      if (erase && there) {
        table_.erase(nth(n), model[n]);
        model.erase(n);
      } else if (!erase && !there) {
        insert(n);
        model[n] = static_cast<RegionIndex>(n + 1);
      }
    }
    const size_t probe = random() % 6000;
    auto above = model.upper_bound(probe);
    const RegionIndex below = above == model.begin() ? kNoRegion : std::prev(above)->second;
    ASSERT_EQ(table_.find(nth(probe).addr), below) << "step " << step;
    above = model.lower_bound(probe);
    ASSERT_EQ(table_.first_start(nth(probe).addr, UINTPTR_MAX),
              above == model.end() ? kNoRegion : above->second);
  }
}

// As the child of a fork finds the tables: copied while another thread was changing them.
TEST(SequenceLock, ParentsWriterIsForgottenInTheChild) {
  SequenceLock lock;
  lock.begin_write();
  EXPECT_FALSE(lock.read_was_clean(lock.begin_read()));
  lock.reset_in_child();
  EXPECT_TRUE(lock.read_was_clean(lock.begin_read()));
  lock.begin_write();
  lock.end_write();
  EXPECT_TRUE(lock.read_was_clean(lock.begin_read()));
}

// Ranges that overlap without containing each other. A reader without the mutex shuts the gates of what it
// finds.
TEST(RegionTable, CollectsAllOverlappingRangesWithoutTheMutex) {
  RegionTable table;
  ASSERT_TRUE(table.map(kMaxRanges));
  for (size_t n = 0; n < 200; ++n) {
    table.insert({(n + 1) * kLen, 100 * kLen}, static_cast<RegionIndex>(n + 1));
  }
  RegionIndex found[256];
  size_t count = 0;
  const uintptr_t at = 151 * kLen;  // in ranges 52 to 151
  ASSERT_TRUE(table.collect_unlocked(at, at + kLen - 1, found, 256, &count));
  ASSERT_EQ(count, 100u);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(found[i], 52 + i);
}

}  // namespace
}  // namespace hydrant
