#include "firehose/gasnet_compat/firehose_registrar.hpp"

#include "tests/support/sizes.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace hydrant {
namespace {

using testing::kPage;

TEST(PinnedTable, CopiesTheLowestInOrder) {
  PinnedTable table;
  for (size_t i = 0; i < 100; ++i) table.add({.addr = (i * 37 % 100 + 1) * kPage, .len = kPage});
  std::vector<PinnedTable::Entry> entries(5);
  ASSERT_EQ(table.copy_lowest(entries.data(), entries.size()), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(entries[i].addr, (i + 1) * kPage);
  EXPECT_EQ(table.size(), 100u);
}

TEST(PinnedTable, UnknownRangesAreIgnored) {
  PinnedTable table;
  table.remove(kPage, kPage);
  table.add({.addr = kPage, .len = kPage});
  table.remove(kPage, 2 * kPage);
  table.remove(2 * kPage, kPage);
  EXPECT_EQ(table.size(), 1u);
}

TEST(FormatAge, ChangesTheUnitAtTenSeconds) {
  char text[24];
  EXPECT_STREQ(format_age(0, text, sizeof text), "0 ms");
  EXPECT_STREQ(format_age(9'999, text, sizeof text), "9999 ms");
  EXPECT_STREQ(format_age(10'000, text, sizeof text), "10 s");
  EXPECT_STREQ(format_age(UINT32_MAX, text, sizeof text), "4294967 s");
}

// Against a multimap: equal addresses, other lengths, deletions that leave holes in probe chains.
TEST(PinnedTable, MatchesAMapUnderRandomUse) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  PinnedTable table;
  std::multimap<uintptr_t, size_t> map;
  for (int step = 0; step < 100'000; ++step) {
    const uintptr_t addr = (1 + random() % 300) * kPage;
    const size_t len = (1 + random() % 3) * kPage;
    if (random() % 2 == 0) {
      table.add({.addr = addr, .len = len});
      map.emplace(addr, len);
    } else {
      table.remove(addr, len);
      const auto same = map.equal_range(addr);
      for (auto it = same.first; it != same.second; ++it) {
        if (it->second != len) continue;
        map.erase(it);
        break;
      }
    }
    ASSERT_EQ(table.size(), map.size());
  }
  std::vector<PinnedTable::Entry> entries(map.size());
  ASSERT_EQ(table.copy_lowest(entries.data(), entries.size()), map.size());
  std::multimap<uintptr_t, size_t> copy;
  for (const auto& entry : entries) copy.emplace(entry.addr, entry.len);
  std::vector<std::pair<uintptr_t, size_t>> left(map.begin(), map.end());
  std::vector<std::pair<uintptr_t, size_t>> right(copy.begin(), copy.end());
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  EXPECT_EQ(left, right);
}

}  // namespace
}  // namespace hydrant
