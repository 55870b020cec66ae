// Page mode's table against a map, and what it touches while it grows.
#include "firehose/cache/index/page_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uint32_t kPageShift = 12;
constexpr uint32_t kMaxPages = 4096;

// A table and its regions' slots, region i + 1 of a bucket kept in `model`.
class PageTables : public ::testing::Test {
 protected:
  PageTables() : slots_(kMaxPages + 1), table_(kPageShift, slots_.data()) {
    EXPECT_TRUE(table_.map(kMaxPages));
  }
  static MemoryRange range_of(uint64_t bucket) {
    return {bucket << kPageShift, size_t{1} << kPageShift};
  }

  void insert(uint64_t bucket, RegionIndex index) {
    slots_[index].addr.store(bucket << kPageShift);
    EXPECT_TRUE(table_.insert(range_of(bucket), index));
    model_[bucket] = index;
  }
  void erase(uint64_t bucket) {
    const RegionIndex index = model_.at(bucket);
    table_.erase(range_of(bucket), index);
    slots_[index].addr.store(kBlankAddr);
    model_.erase(bucket);
  }
  void check_finds(uint64_t bucket) const {
    const auto at = model_.find(bucket);
    EXPECT_EQ(table_.find((bucket << kPageShift) + 17),
              at == model_.end() ? kNoRegion : at->second);
  }
  void check_range(uint64_t low, uint64_t high) const {
    const auto first = model_.lower_bound(low);
    const RegionIndex lowest =
        first != model_.end() && first->first <= high ? first->second : kNoRegion;
    std::vector<RegionIndex> expected;
    for (auto it = first; it != model_.end() && it->first <= high; ++it) {
      expected.push_back(it->second);
    }
    const uintptr_t begin = low << kPageShift;
    const uintptr_t last = ((high + 1) << kPageShift) - 1;
    EXPECT_EQ(table_.any_overlap(begin, last), lowest);
    EXPECT_EQ(table_.first_start(begin, last), lowest);
    std::vector<RegionIndex> found(kMaxPages);
    found.resize(table_.collect(begin, last, found.data(), kMaxPages));
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
    EXPECT_EQ(table_.collect(begin, last, found.data(), 1), std::min<size_t>(expected.size(), 1));
  }

  std::vector<RegionSlot> slots_;
  PageTable table_;
  std::map<uint64_t, RegionIndex> model_;
};

TEST_F(PageTables, EmptyFindsNothing) {
  EXPECT_EQ(table_.find(0), kNoRegion);
  EXPECT_EQ(table_.find(UINTPTR_MAX), kNoRegion);
  check_range(0, 100);
  EXPECT_EQ(table_.memory_bytes(), 0u);
}

TEST_F(PageTables, RandomOperationsMatchAMap) {
  std::mt19937_64 random(20);
  std::vector<RegionIndex> free;
  for (RegionIndex i = kMaxPages; i > 0; --i) free.push_back(i);
  for (size_t step = 0; step < 60'000; ++step) {
    // Dense and far apart, more and more full and then less again.
    const uint64_t bucket = random() % 4 == 0 ? (random() % 6000) << 20 : random() % 6000;
    const bool full = (step / 15'000) % 2 == 0 ? random() % 4 != 0 : random() % 4 == 0;
    if (model_.count(bucket) != 0) {
      if (full) continue;
      free.push_back(model_.at(bucket));
      erase(bucket);
    } else if (full && !free.empty()) {
      insert(bucket, free.back());
      free.pop_back();
    }
    check_finds(bucket);
    check_finds(random() % 6000);
    if (step % 500 == 0) check_range(random() % 6000, 6000 + (random() % 6000 << 18));
    if (step % 500 == 1) check_range(bucket, bucket + 5);
  }
  EXPECT_LE(table_.memory_bytes(), kMaxPages * 2 * sizeof(RegionIndex));
  table_.clear();
  model_.clear();
  check_range(0, 6000);
}

size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  size_t total = 0;
  size_t resident = 0;
  const int read = file == nullptr ? 0 : std::fscanf(file, "%zu %zu", &total, &resident);
  if (file != nullptr) std::fclose(file);
  return read == 2 ? resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

TEST(PageTableMemory, FarApartBucketsTouchNoMoreThanTheyNeed) {
  constexpr size_t kCapacity = size_t{1} << 20;
  constexpr RegionIndex kRegions = 1024;
  std::vector<RegionSlot> slots(kRegions + 1);
  PageTable table(kPageShift, slots.data());
  ASSERT_TRUE(table.map(kCapacity));
  const size_t before = resident_bytes();
  ASSERT_NE(before, 0u);
  for (RegionIndex i = 1; i <= kRegions; ++i) {
    const uintptr_t addr = uintptr_t{i} << 30;
    slots[i].addr.store(addr);
    ASSERT_TRUE(table.insert({addr, size_t{1} << kPageShift}, i));
  }
  const size_t grown = resident_bytes() - before;
  EXPECT_EQ(table.memory_bytes(), kRegions * 8u);
  // Two pages, and some for other memory that the program touched; a page for each would be 4 MiB.
  EXPECT_LT(grown, size_t{1} << 20);
}

}  // namespace
}  // namespace hydrant::testing
