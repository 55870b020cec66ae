#include "firehose/watch/arena/span_table.hpp"

#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace hydrant::arena {
namespace {

// A reservation of addresses that is never accessed.
class SpanTableTest : public ::testing::Test {
 protected:
  static constexpr size_t kPages = 4096;
  static constexpr uintptr_t kAddr = uintptr_t{1} << 40;

  SpanTableTest() : pages_(kPages) {
    in_.addr = kAddr;
    in_.bytes = kPages * kPageBytes;
    in_.pages = pages_.data();
    table_.give(table_.make(&in_, kAddr, kPages, SpanKind::kFree));
  }
  Span* take(size_t pages, size_t alignment = kPageBytes) {
    Span* span = table_.take(pages, alignment);
    if (span != nullptr) span->kind = SpanKind::kLarge;
    return span;
  }

  std::vector<Span*> pages_;
  AddressReservation in_{};
  SpanTable table_;
};

TEST_F(SpanTableTest, AllPagesCanBeReused) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Span*> all;
    while (Span* span = take(8)) all.push_back(span);
    EXPECT_EQ(all.size(), kPages / 8);
    for (size_t i = 0; i < all.size(); i += 2) table_.give(all[i]);
    EXPECT_EQ(take(9), nullptr) << "neighbours are in use";
    for (size_t i = 1; i < all.size(); i += 2) table_.give(all[i]);
    Span* whole = take(kPages);
    ASSERT_NE(whole, nullptr) << "free neighbours were not joined";
    table_.give(whole);
  }
}

TEST_F(SpanTableTest, AlignmentIsKeptAndNothingIsLost) {
  Span* one = take(1);
  Span* aligned = take(10, 256 * kPageBytes);
  ASSERT_NE(aligned, nullptr);
  EXPECT_EQ(aligned->addr % (256 * kPageBytes), 0u);
  EXPECT_EQ(aligned->pages, 10u);
  Span* between = take(255);
  ASSERT_NE(between, nullptr);
  EXPECT_LT(between->addr, aligned->addr);
  table_.give(one);
  table_.give(between);
  table_.give(aligned);
  EXPECT_NE(take(kPages), nullptr);
}

TEST_F(SpanTableTest, GrowsIntoFreePagesOnly) {
  Span* a = take(10);
  Span* b = take(10);
  ASSERT_EQ(b->addr, a->end());
  EXPECT_FALSE(table_.extend(a, 11));
  table_.give(b);
  EXPECT_TRUE(table_.extend(a, 25));
  EXPECT_EQ(a->pages, 25u);
  EXPECT_TRUE(table_.extend(a, kPages));
  EXPECT_FALSE(table_.extend(a, kPages + 1));
  EXPECT_TRUE(table_.shrink(a, 3));
  EXPECT_EQ(take(kPages - 3)->addr, a->end());
}

TEST_F(SpanTableTest, FindKnowsFirstAndLastPages) {
  Span* a = take(10);
  EXPECT_EQ(SpanTable::find(in_, a->addr), a);
  EXPECT_EQ(SpanTable::find(in_, a->end() - 1), a);
  EXPECT_NE(SpanTable::find(in_, a->end()), a);
}

TEST_F(SpanTableTest, RandomUseNeverOverlapsAndJoinsUpAgain) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<int> owner(kPages, 0);
  std::vector<Span*> live;
  const auto mark = [&](const Span& span, int from, int to) {
    for (size_t i = 0; i < span.pages; ++i) {
      int& page = owner[(span.addr - kAddr) / kPageBytes + i];
      ASSERT_EQ(page, from);
      page = to;
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 100 && random() % 2 == 0) {
      const size_t alignment = kPageBytes << (random() % 10);
      Span* span = take(1 + random() % 60, alignment);
      if (span == nullptr) continue;
      ASSERT_EQ(span->addr % alignment, 0u);
      mark(*span, 0, 1);
      live.push_back(span);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      mark(*live.back(), 1, 0);
      table_.give(live.back());
      live.pop_back();
    }
  }
  for (Span* span : live) table_.give(span);
  EXPECT_NE(take(kPages), nullptr);
}

}  // namespace
}  // namespace hydrant::arena
