#include "firehose/registrars/page_pin_counts.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

class PageCountsTest : public ::testing::Test {
 protected:
  void add(MemoryRange range) {
    ASSERT_TRUE(counts_.reserve(range, 1));
    counts_.add(range);
  }

  NodePool nodes_;
  PagePinCounts counts_{&nodes_};
};

TEST_F(PageCountsTest, RemoveReportsPagesWithoutPins) {
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  add({0x1000, 0x4000});
  add({0x3000, 0x4000});
  EXPECT_TRUE(counts_.covers({0x1000, 0x6000}));
  EXPECT_FALSE(counts_.covers({0x1000, 0x6001}));
  EXPECT_FALSE(counts_.covers({0xfff, 0x10}));
  counts_.remove({0x1000, 0x4000}, note);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0], (MemoryRange{0x1000, 0x2000}));
  gone.clear();
  counts_.remove({0x4000, 0x1000}, note);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0], (MemoryRange{0x4000, 0x1000}));
  EXPECT_FALSE(counts_.covers({0x3000, 0x2000}));
  counts_.each(note);
  counts_.clear();
  EXPECT_EQ(gone.size(), 3u);
  EXPECT_EQ(counts_.intervals(), 0u);
}

TEST_F(PageCountsTest, RemoveOmitsKeptPages) {
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  add({0x1000, 0x4000});
  counts_.keep({0x2000, 0x1000});
  EXPECT_EQ(counts_.intervals(), 3u);
  PagePinCounts unlocked(&nodes_);
  counts_.remove_to({0x1000, 0x4000}, &unlocked);
  EXPECT_EQ(counts_.intervals(), 0u);
  unlocked.each(note);
  unlocked.clear();
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x1000, 0x1000}, {0x3000, 0x2000}}));
  // The mark is of the pins, not of the place.
  gone.clear();
  add({0x2000, 0x1000});
  counts_.remove({0x2000, 0x1000}, note);
  EXPECT_EQ(gone.size(), 1u);
}

TEST_F(PageCountsTest, NewPinEndsTheMarkOfKeptPages) {
  std::vector<MemoryRange> gone;
  add({0x1000, 0x4000});
  counts_.keep({0x1000, 0x4000});
  add({0x2000, 0x2000});
  counts_.keep({0x3000, 0x1000});
  counts_.remove({0x2000, 0x2000}, [](MemoryRange) {});
  counts_.remove({0x1000, 0x4000}, [&](MemoryRange range) { gone.push_back(range); });
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x2000, 0x1000}}));
  EXPECT_EQ(counts_.intervals(), 0u);
}

TEST_F(PageCountsTest, PinsOfUnmappedMemoryEndFirstAndAreNotReported) {
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  add({0x1000, 0x4000});
  counts_.keep({0x2000, 0x1000});
  EXPECT_TRUE(counts_.note_unmapped({0x2000, 0x2000}));
  EXPECT_TRUE(counts_.note_unmapped({0x8000, 0x1000})) << "nothing is pinned there";
  EXPECT_TRUE(counts_.covers({0x1000, 0x4000}));
  counts_.each(note);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x1000, 0x1000}, {0x4000, 0x1000}}));
  gone.clear();
  add({0x3000, 0x1000});
  counts_.remove({0x1000, 0x4000}, note);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x1000, 0x1000}, {0x4000, 0x1000}}));
  gone.clear();
  counts_.remove({0x3000, 0x1000}, note);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x3000, 0x1000}}));
  EXPECT_EQ(counts_.intervals(), 0u);
}

TEST_F(PageCountsTest, NotingUnmappedMemoryAllocatesNothing) {
  add({0x1000, 0x40'0000});
  uintptr_t at = 0x2000;
  while (counts_.note_unmapped({at, 0x1000})) at += 0x2000;
  EXPECT_GE(at, 0x2000 + 8 * uintptr_t{0x2000});
  const size_t intervals = counts_.intervals();
  EXPECT_FALSE(counts_.note_unmapped({at, 0x1000}));
  EXPECT_EQ(counts_.intervals(), intervals);
  counts_.must_note_unmapped({at, 0x1000});
  EXPECT_EQ(counts_.intervals(), intervals + 2);
}

TEST_F(PageCountsTest, UncountedAndKeptRunsAreNotOwn) {
  const auto gaps = [&](MemoryRange range) {
    std::vector<MemoryRange> found;
    counts_.each_not_own(range, [&](MemoryRange gap) { found.push_back(gap); });
    return found;
  };
  using Ranges = std::vector<MemoryRange>;
  EXPECT_EQ(gaps({0x1000, 0x5000}), (Ranges{{0x1000, 0x5000}}));
  add({0x2000, 0x1000});
  add({0x4000, 0x2000});
  add({0x5000, 0x1000});
  EXPECT_EQ(gaps({0x1000, 0x7000}), (Ranges{{0x1000, 0x1000}, {0x3000, 0x1000}, {0x6000, 0x2000}}));
  EXPECT_EQ(gaps({0x2800, 0x1000}), (Ranges{{0x3000, 0x800}}));
  EXPECT_EQ(gaps({0x4800, 0x1000}), Ranges{});
  // A pin of memory that is not there any more fills no gap.
  EXPECT_TRUE(counts_.note_unmapped({0x2000, 0x3000}));
  EXPECT_EQ(gaps({0x1000, 0x7000}), (Ranges{{0x1000, 0x4000}, {0x6000, 0x2000}}));
  counts_.keep({0x5000, 0x1000});
  EXPECT_EQ(gaps({0x1000, 0x7000}), (Ranges{{0x1000, 0x7000}}));
}

TEST_F(PageCountsTest, EqualNeighboursAreOneInterval) {
  for (uintptr_t i = 0; i < 100; ++i) add({(i * 7 % 100) * 0x1000 + 0x1000, 0x1000});
  EXPECT_EQ(counts_.intervals(), 1u);
  add({0x5000, 0x1000});
  EXPECT_EQ(counts_.intervals(), 3u);
  counts_.remove({0x5000, 0x1000}, [](MemoryRange) {});
  EXPECT_EQ(counts_.intervals(), 1u);
}

TEST_F(PageCountsTest, FreshRangeIsOneInterval) {
  add({uintptr_t{1} << 30, size_t{1} << 40});
  EXPECT_EQ(counts_.intervals(), 1u);
  add({uintptr_t{1} << 31, 0x1000});
  EXPECT_EQ(counts_.intervals(), 3u);
}

TEST_F(PageCountsTest, AgreesWithAnArrayOfCounters) {
  constexpr size_t kPages = 64;
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<int> model(kPages, 0), unmapped(kPages, 0), reported(kPages, 0);
  std::vector<MemoryRange> live;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 8 == 0) {
      const size_t first = random() % kPages, n = 1 + random() % (kPages - first);
      counts_.must_note_unmapped({first + 1, n});
      for (size_t i = first; i < first + n; ++i) {
        if (model[i] != 0) reported[i] = step;
        unmapped[i] += std::exchange(model[i], 0);
      }
    } else if (live.empty() || random() % 2 == 0) {
      const size_t first = random() % kPages, n = 1 + random() % (kPages - first);
      add({first + 1, n});
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
      std::vector<bool> gone(kPages, false), expected(kPages, false);
      for (size_t i = range.addr - 1; i < range.end() - 1; ++i) {
        expected[i] = unmapped[i] == 0 && model[i] == 1;
        --(unmapped[i] != 0 ? unmapped[i] : model[i]);
        if (unmapped[i] == 0) reported[i] = 0;
      }
      uintptr_t last_end = 0;
      counts_.remove(range, [&](MemoryRange r) {
        EXPECT_GT(r.addr, last_end) << "two stretches in place of one";
        last_end = r.end();
        for (uintptr_t i = r.addr; i < r.end(); ++i) gone[i - 1] = true;
      });
      ASSERT_EQ(gone, expected);
    }
    size_t intervals = 0;
    for (size_t i = 0; i < kPages; ++i) {
      const bool counted = model[i] + unmapped[i] > 0;
      ASSERT_EQ(counts_.covers({i + 1, 1}), counted);
      const auto differs = [i](const std::vector<int>& of) { return of[i] != of[i - 1]; };
      if (counted && (i == 0 || differs(model) || differs(unmapped) || differs(reported)))
        ++intervals;
    }
    ASSERT_EQ(counts_.intervals(), intervals);
  }
}

TEST_F(PageCountsTest, PinOfUnmappedMemoryIsKnownByItsStamp) {
  std::vector<MemoryRange> gone;
  const auto note = [&](MemoryRange range) { gone.push_back(range); };
  ASSERT_TRUE(counts_.reserve({0x1000, 0x4000}));
  const uint64_t old_stamp = counts_.add({0x1000, 0x4000});
  EXPECT_TRUE(counts_.note_unmapped({0x2000, 0x2000}));
  ASSERT_TRUE(counts_.reserve({0x1000, 0x4000}));
  const uint64_t stamp = counts_.add({0x1000, 0x4000});
  EXPECT_NE(stamp, old_stamp);
  counts_.remove({0x1000, 0x4000}, note, stamp);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x2000, 0x2000}})) << "the old one has the rest";
  gone.clear();
  counts_.remove({0x1000, 0x4000}, note, old_stamp);
  EXPECT_EQ(gone, (std::vector<MemoryRange>{{0x1000, 0x1000}, {0x4000, 0x1000}}));
  EXPECT_EQ(counts_.intervals(), 0u);
}

// A page is dropped with the last of the pins that began after its last unmap report.
TEST_F(PageCountsTest, PinsWithStampsAgreeWithAListForEachPage) {
  constexpr size_t kPages = 48;
  struct Pin {
    MemoryRange range;
    uint64_t stamp;
    int step;
  };
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<int> reported(kPages + 1, -1);
  std::vector<Pin> live;
  const auto pins_of = [&](uintptr_t page) {
    size_t n = 0;
    for (const Pin& pin : live) n += pin.range.covers({page, 1}) && pin.step > reported[page];
    return n;
  };
  for (int step = 0; step < 10000; ++step) {
    const uintptr_t first = 1 + random() % kPages;
    const MemoryRange range{first, 1 + random() % (kPages + 1 - first)};
    if (random() % 8 == 0) {
      counts_.must_note_unmapped(range);
      for (uintptr_t page = first; page < range.end(); ++page) reported[page] = step;
    } else if (live.empty() || (live.size() < 40 && random() % 2 == 0)) {
      ASSERT_TRUE(counts_.reserve(range));
      live.push_back({range, counts_.add(range), step});
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Pin pin = live.back();
      std::vector<bool> gone(kPages + 1, false), expected(kPages + 1, false);
      for (uintptr_t page = pin.range.addr; page < pin.range.end(); ++page)
        expected[page] = pin.step > reported[page] && pins_of(page) == 1;
      const auto note = [&](MemoryRange run) {
        for (uintptr_t page = run.addr; page < run.end(); ++page) gone[page] = true;
      };
      counts_.remove(pin.range, note, pin.stamp);
      live.pop_back();
      ASSERT_EQ(gone, expected) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant
