#include "firehose/registrars/page_counts.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hydrant {
namespace {

TEST(PageCounts, WhatNobodyCountsIsGone) {
  PageCounts counts;
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  counts.add({0x1000, 0x4000});
  counts.add({0x3000, 0x4000});
  EXPECT_TRUE(counts.covers({0x1000, 0x6000}));
  EXPECT_FALSE(counts.covers({0x1000, 0x6001}));
  EXPECT_FALSE(counts.covers({0xfff, 0x10}));
  counts.remove({0x1000, 0x4000}, note);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0], (MemoryRange{0x1000, 0x2000}));
  gone.clear();
  counts.remove({0x4000, 0x1000}, note);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0], (MemoryRange{0x4000, 0x1000}));
  EXPECT_FALSE(counts.covers({0x3000, 0x2000}));
  counts.clear(note);
  EXPECT_EQ(gone.size(), 3u);
  EXPECT_EQ(counts.intervals(), 0u);
}

TEST(PageCounts, KeptPagesAreNotReportedAsGone) {
  PageCounts counts;
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  counts.add({0x1000, 0x4000});
  counts.keep({0x2000, 0x1000});
  EXPECT_EQ(counts.intervals(), 3u);
  PageCounts unlocked;
  counts.remove_to({0x1000, 0x4000}, &unlocked);
  EXPECT_EQ(counts.intervals(), 0u);
  unlocked.clear(note);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x1000, 0x1000}, {0x3000, 0x2000}}));
  // The mark is of the pins, not of the place.
  gone.clear();
  counts.add({0x2000, 0x1000});
  counts.remove({0x2000, 0x1000}, note);
  EXPECT_EQ(gone.size(), 1u);
}

TEST(PageCounts, GapsAreTheRunsWithoutACount) {
  PageCounts counts;
  const auto gaps = [&](MemoryRange range) {
    std::vector<MemoryRange> found;
    counts.each_gap(range, [&](MemoryRange gap) { found.push_back(gap); });
    return found;
  };
  using Ranges = std::vector<MemoryRange>;
  EXPECT_EQ(gaps({0x1000, 0x5000}), (Ranges{{0x1000, 0x5000}}));
  counts.add({0x2000, 0x1000});
  counts.add({0x4000, 0x2000});
  counts.add({0x5000, 0x1000});
  EXPECT_EQ(gaps({0x1000, 0x7000}), (Ranges{{0x1000, 0x1000}, {0x3000, 0x1000}, {0x6000, 0x2000}}));
  EXPECT_EQ(gaps({0x2800, 0x1000}), (Ranges{{0x3000, 0x800}}));
  EXPECT_EQ(gaps({0x4800, 0x1000}), Ranges{});
}

TEST(PageCounts, EqualNeighboursAreOneInterval) {
  PageCounts counts;
  for (uintptr_t i = 0; i < 100; ++i) counts.add({(i * 7 % 100) * 0x1000 + 0x1000, 0x1000});
  EXPECT_EQ(counts.intervals(), 1u);
  counts.add({0x5000, 0x1000});
  EXPECT_EQ(counts.intervals(), 3u);
  counts.remove({0x5000, 0x1000}, [](MemoryRange) {});
  EXPECT_EQ(counts.intervals(), 1u);
}

TEST(PageCounts, AFreshRangeIsOneIntervalWhateverItsLength) {
  PageCounts counts;
  counts.add({uintptr_t{1} << 30, size_t{1} << 40});
  EXPECT_EQ(counts.intervals(), 1u);
  counts.add({uintptr_t{1} << 31, 0x1000});
  EXPECT_EQ(counts.intervals(), 3u);
}

TEST(PageCounts, AgreesWithAnArrayOfCounters) {
  constexpr size_t kPages = 64;
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  PageCounts counts;
  std::vector<int> model(kPages, 0);
  std::vector<MemoryRange> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const size_t first = random() % kPages, n = 1 + random() % (kPages - first);
      counts.add({first + 1, n});
      live.push_back({first + 1, n});
      for (size_t i = first; i < first + n; ++i) ++model[i];
    } else {
      const size_t pick = random() % live.size();
      const MemoryRange whole = live[pick];
      live[pick] = live.back();
      live.pop_back();
      // Undone in pieces as well: what is left on either side stays counted.
      const size_t skip = random() % 2 == 0 ? 0 : random() % whole.len;
      const MemoryRange range{whole.addr + skip, 1 + random() % (whole.len - skip)};
      if (skip > 0) live.push_back({whole.addr, skip});
      if (range.end() < whole.end()) live.push_back({range.end(), whole.end() - range.end()});
      for (size_t i = range.addr; i < range.end(); ++i) --model[i - 1];
      std::vector<bool> gone(kPages, false);
      uintptr_t last_end = 0;
      counts.remove(range, [&](MemoryRange r) {
        EXPECT_GT(r.addr, last_end) << "two stretches in place of one";
        last_end = r.end();
        for (uintptr_t i = r.addr; i < r.end(); ++i) gone[i - 1] = true;
      });
      for (size_t i = range.addr; i < range.end(); ++i) ASSERT_EQ(gone[i - 1], model[i - 1] == 0);
    }
    size_t intervals = 0;
    for (size_t i = 0; i < kPages; ++i) {
      ASSERT_EQ(counts.covers({i + 1, 1}), model[i] > 0);
      if (model[i] != 0 && (i == 0 || model[i] != model[i - 1])) ++intervals;
    }
    ASSERT_EQ(counts.intervals(), intervals);
  }
}

}  // namespace
}  // namespace hydrant
