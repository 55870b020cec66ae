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
MemoryRange nth(size_t n) { return {(n + 1) * 2 * kLen, kLen}; }

// A table, and the slots of its regions.
class RegionTables : public ::testing::Test {
 protected:
  RegionTables() : slots_(kMaxRanges + 1), table_(slots_.data()) {
    EXPECT_TRUE(table_.map(kMaxRanges));
  }
  bool insert(MemoryRange range, RegionIndex index) {
    slots_[index].addr.store(range.addr);
    slots_[index].len.store(range.len);
    return table_.insert(range, index);
  }

  std::vector<RegionSlot> slots_;
  RegionTable table_;
};

class RegionTableFill : public RegionTables {
 protected:
  void insert(size_t n) {
    EXPECT_TRUE(RegionTables::insert(nth(n), static_cast<RegionIndex>(n + 1)));
  }
  void expect_all(size_t count) const {
    for (size_t n = 0; n < count; ++n) ASSERT_EQ(table_.find(nth(n).addr), n + 1);
  }
  double bytes_per_range(size_t count) const {
    return static_cast<double>(table_.memory_bytes()) / static_cast<double>(count);
  }
};

TEST_F(RegionTableFill, AscendingOrderFillsTheChunks) {
  for (size_t n = 0; n < kMaxRanges; ++n) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(bytes_per_range(kMaxRanges), 13);
}

TEST_F(RegionTableFill, DescendingOrderFillsTheChunks) {
  for (size_t n = kMaxRanges; n-- > 0;) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(bytes_per_range(kMaxRanges), 13);
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
  EXPECT_LT(bytes_per_range(kMaxRanges), 13.5);
}

TEST_F(RegionTableFill, RandomOrderLeavesAThirdFreeAtMost) {
  std::vector<size_t> order(kMaxRanges);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (const size_t n : order) insert(n);
  expect_all(kMaxRanges);
  EXPECT_LT(bytes_per_range(kMaxRanges), 17.5);
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

// The child of a fork: chunks that were in use, and free ones, hold what the parent had in them.
TEST_F(RegionTableFill, ClearedTableIsUsedAgain) {
  for (size_t n = 0; n < 1000; ++n) insert(n);
  for (size_t n = 300; n < 700; ++n) table_.erase(nth(n), static_cast<RegionIndex>(n + 1));
  table_.clear();
  EXPECT_EQ(table_.find(nth(500).addr), kNoRegion);
  for (size_t n = 0; n < 2000; n += 2) insert(n);
  for (size_t n = 0; n < 2000; ++n) ASSERT_EQ(table_.find(nth(n).addr), n / 2 * 2 + 1);
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
TEST_F(RegionTables, CollectsAllOverlappingRangesWithoutTheMutex) {
  for (size_t n = 0; n < 200; ++n) {
    ASSERT_TRUE(insert({(n + 1) * kLen, 100 * kLen}, static_cast<RegionIndex>(n + 1)));
  }
  RegionIndex found[256];
  size_t count = 0;
  const uintptr_t at = 151 * kLen;  // in ranges 52 to 151
  ASSERT_TRUE(table_.collect_unlocked(at, at + kLen - 1, found, 256, &count));
  ASSERT_EQ(count, 100u);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(found[i], 52 + i);
}

// Ranges of any length at random: the table takes exactly those that contain no other and lie in none, and
// finds what a map finds.
TEST_F(RegionTables, RefusesNestedRangesAndFindsTheOthers) {
  std::mt19937_64 random(11);
  std::map<uintptr_t, std::pair<size_t, RegionIndex>> model;  // by start: length and region
  std::vector<RegionIndex> unused(kMaxRanges);
  std::iota(unused.begin(), unused.end(), RegionIndex{1});
  constexpr size_t kPlaces = 4000;
  size_t refused = 0;
  for (int step = 0; step < 100'000; ++step) {
    const MemoryRange range{(1 + random() % kPlaces) * kLen, (1 + random() % 8) * kLen};
    const auto above = model.upper_bound(range.addr);
    const auto is_nested = [&](const auto& other) {
      const MemoryRange there{other.first, other.second.first};
      return there.covers(range) || range.covers(there);
    };
    if (random() % 3 == 0 && above != model.end()) {
      const auto [addr, entry] = *above;
      table_.erase({addr, entry.first}, entry.second);
      unused.push_back(entry.second);
      model.erase(above);
      continue;
    }
    const bool nested = (above != model.end() && is_nested(*above)) ||
                        (above != model.begin() && is_nested(*std::prev(above)));
    refused += nested ? 1 : 0;
    ASSERT_EQ(insert(range, unused.back()), !nested) << "step " << step;
    if (!nested) {
      model[range.addr] = {range.len, unused.back()};
      unused.pop_back();
    }
    const uintptr_t at = (1 + random() % kPlaces) * kLen;
    const auto next = model.upper_bound(at);
    const RegionIndex below = next == model.begin() ? kNoRegion : std::prev(next)->second.second;
    ASSERT_EQ(table_.find(at), below) << "step " << step;
    const bool reaches =
        next != model.begin() && std::prev(next)->first + std::prev(next)->second.first > at;
    const RegionIndex overlapping = reaches ? below
                                    : next != model.end() && next->first < at + 2 * kLen
                                        ? next->second.second
                                        : kNoRegion;
    const uintptr_t last = at + 2 * kLen - 1;
    ASSERT_EQ(table_.any_overlap(at, last), overlapping) << "step " << step;
    const auto start = model.lower_bound(at);
    ASSERT_EQ(table_.first_start(at, UINTPTR_MAX),
              start == model.end() ? kNoRegion : start->second.second);
    if (step % 16 != 0) continue;
    std::vector<RegionIndex> all;
    for (const auto& [addr, entry] : model) {
      if (MemoryRange{addr, entry.first}.overlaps({at, 2 * kLen})) all.push_back(entry.second);
    }
    std::vector<RegionIndex> found(64);
    size_t count = 0;
    ASSERT_TRUE(table_.collect_unlocked(at, last, found.data(), found.size(), &count));
    found.resize(count);
    ASSERT_EQ(found, all) << "step " << step;
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace hydrant
