// Search for locked pages over a simulated kernel, which reports mappings, or only whether any page of a
// range is locked.
#include "firehose/registrars/locked_ranges.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using testing::kPageBytes;

constexpr uintptr_t kPlayedBase = 0x10'0000;

struct PlayedLocks {
  std::vector<bool> locked;
  bool tells_mappings = true;
  int questions = 0;
  int mappings_asked = 0;
  // The number of the query before which the mapping is divided.
  int divided_at = -1;

  size_t page(uintptr_t addr) const { return (addr - kPlayedBase) / kPageBytes; }
  MemoryRange pages(size_t first, size_t n) const {
    return {kPlayedBase + first * kPageBytes, n * kPageBytes};
  }
};
PlayedLocks* g_played_locks = nullptr;

int played_find_lock(MemoryRange range) noexcept {
  PlayedLocks& kernel = *g_played_locks;
  ++kernel.questions;
  for (size_t i = kernel.page(range.addr); i < kernel.page(range.end()); ++i) {
    if (kernel.locked[i]) return EBUSY;
  }
  return 0;
}

int played_mapping(uintptr_t addr, MemoryRange* out) noexcept {
  PlayedLocks& kernel = *g_played_locks;
  if (!kernel.tells_mappings) return ENOTTY;
  const size_t page = kernel.page(addr);
  size_t begin = page, end = page + 1;
  while (begin > 0 && kernel.locked[begin - 1] == kernel.locked[page]) --begin;
  while (end < kernel.locked.size() && kernel.locked[end] == kernel.locked[page]) ++end;
  if (kernel.mappings_asked++ == kernel.divided_at) end = page + 1;
  *out = kernel.pages(begin, end - begin);
  return 0;
}

class LockedRangesTest : public ::testing::Test {
 protected:
  LockedRangesTest() { g_played_locks = &kernel_; }
  ~LockedRangesTest() override { g_played_locks = nullptr; }

  void play(size_t pages, bool tells_mappings) {
    kernel_ = {};
    kernel_.locked.assign(pages, false);
    kernel_.tells_mappings = tells_mappings;
  }
  void lock(size_t first, size_t n) {
    std::fill_n(kernel_.locked.begin() + static_cast<ptrdiff_t>(first), n, true);
  }
  LockedRanges find(size_t first, size_t n) {
    MlockCalls calls = kMlockCalls;
    calls.find_lock = &played_find_lock;
    calls.mapping = &played_mapping;
    LockedRanges found;
    found.find(calls, kernel_.pages(first, n), kPageBytes);
    return found;
  }
  // Runs are in order and disjoint; no locked page is missed, and completely locked runs are marked whole.
  void expect_true(const LockedRanges& found, size_t first, size_t n) {
    size_t at = first;
    for (const auto& [range, whole] : found) {
      const size_t begin = kernel_.page(range.addr), end = kernel_.page(range.end());
      ASSERT_LE(at, begin);
      ASSERT_LE(end, first + n);
      for (; at < begin; ++at) ASSERT_FALSE(kernel_.locked[at]) << "page " << at;
      for (; whole && at < end; ++at) ASSERT_TRUE(kernel_.locked[at]) << "page " << at;
      at = end;
    }
    for (; at < first + n; ++at) ASSERT_FALSE(kernel_.locked[at]) << "page " << at;
  }
  static bool all_whole(const LockedRanges& found) {
    return std::all_of(found.begin(), found.end(), [](const auto& one) { return one.whole; });
  }

  PlayedLocks kernel_;
};

TEST_F(LockedRangesTest, UnlockedRangeTakesOneQuery) {
  play(1 << 16, true);
  EXPECT_EQ(find(0, 1 << 16).size(), 0u);
  EXPECT_EQ(kernel_.questions, 1);
  EXPECT_EQ(kernel_.mappings_asked, 0);
}

TEST_F(LockedRangesTest, LargeLockedMappingTakesFewQueries) {
  play(1 << 16, true);
  lock(0, 1 << 16);
  const LockedRanges found = find(10, 1 << 15);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found.begin()->whole);
  EXPECT_EQ(found.begin()->range, kernel_.pages(10, 1 << 15));
  EXPECT_LE(kernel_.questions + kernel_.mappings_asked, 4);
}

TEST_F(LockedRangesTest, LargeLockedRangeIsPartialWithoutMappings) {
  play(1 << 16, false);
  lock(0, 1 << 16);
  const LockedRanges found = find(0, 1 << 16);
  ASSERT_NO_FATAL_FAILURE(expect_true(found, 0, 1 << 16));
  EXPECT_EQ(found.size(), 1u);
  EXPECT_FALSE(all_whole(found));
  EXPECT_LE(kernel_.questions, 260);
}

TEST_F(LockedRangesTest, HundredPagesAreDistinguishedWithoutMappings) {
  play(100, false);
  lock(3, 20);
  lock(30, 1);
  lock(40, 60);
  const LockedRanges found = find(0, 100);
  ASSERT_NO_FATAL_FAILURE(expect_true(found, 0, 100));
  EXPECT_EQ(found.size(), 3u);
  EXPECT_TRUE(all_whole(found));
}

TEST_F(LockedRangesTest, TooManyAlternationsEndInAPartialRange) {
  for (const bool tells_mappings : {true, false}) {
    play(4096, tells_mappings);
    for (size_t i = 0; i < 4096; i += 2) lock(i, 1);
    const LockedRanges found = find(0, 4096);
    ASSERT_NO_FATAL_FAILURE(expect_true(found, 0, 4096));
    EXPECT_FALSE(all_whole(found));
  }
}

TEST_F(LockedRangesTest, MappingDividedMeanwhileIsPartial) {
  play(64, true);
  lock(0, 64);
  kernel_.divided_at = 1;
  const LockedRanges found = find(0, 64);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found.begin()->whole);
  EXPECT_EQ(found.begin()->range, kernel_.pages(0, 64));
}

TEST_F(LockedRangesTest, RandomLocksAreFound) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int step = 0; step < 2000; ++step) {
    const size_t pages = 1 + random() % 600;
    play(pages, random() % 2 == 0);
    const size_t runs = random() % 100;
    for (size_t i = 0; i < runs; ++i) {
      const size_t at = random() % pages;
      lock(at, 1 + random() % std::min<size_t>(pages - at, 20));
    }
    const size_t first = random() % pages, n = 1 + random() % (pages - first);
    const LockedRanges found = find(first, n);
    ASSERT_NO_FATAL_FAILURE(expect_true(found, first, n)) << "step " << step;
    if (kernel_.tells_mappings && found.size() < 64) {
      ASSERT_TRUE(all_whole(found)) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant
