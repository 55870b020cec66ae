#include "firehose/base/memory_range.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

TEST(Access, IncludesComparesSets) {
  EXPECT_TRUE(includes(Access::kAll, Access::kRemoteAtomic));
  EXPECT_TRUE(includes(Access::kLocalRead, Access::kLocalRead));
  EXPECT_TRUE(includes(Access::kLocalWrite, Access::kLocalRead))
      << "local read is part of everything";
  EXPECT_FALSE(includes(Access::kLocalWrite, Access::kLocalWrite | Access::kRemoteRead));
}

TEST(MemoryRange, ValidRangesAreNotEmptyAndDoNotWrap) {
  EXPECT_TRUE((MemoryRange{0x1000, 1}).valid());
  EXPECT_FALSE((MemoryRange{0x1000, 0}).valid());
  EXPECT_TRUE((MemoryRange{UINTPTR_MAX, 1}).valid());
  EXPECT_FALSE((MemoryRange{UINTPTR_MAX, 2}).valid());
  EXPECT_FALSE((MemoryRange{2, SIZE_MAX}).valid());
}

TEST(MemoryRange, CoversAndOverlapsCountBothEnds) {
  constexpr MemoryRange range{0x1000, 0x1000};
  EXPECT_TRUE(range.covers({0x1000, 0x1000}));
  EXPECT_TRUE(range.covers({0x1fff, 1}));
  EXPECT_FALSE(range.covers({0x1fff, 2}));
  EXPECT_FALSE(range.covers({0xfff, 2}));
  EXPECT_TRUE(range.overlaps({0xfff, 2}));
  EXPECT_TRUE(range.overlaps({0x1fff, 2}));
  EXPECT_FALSE(range.overlaps({0x2000, 1}));
  EXPECT_FALSE(range.overlaps({0xfff, 1}));
}

TEST(MemoryRange, RoundingOutReachesTheGranule) {
  EXPECT_EQ(round_out({0x1001, 1}, 4096), (MemoryRange{0x1000, 0x1000}));
  EXPECT_EQ(round_out({0x1fff, 2}, 4096), (MemoryRange{0x1000, 0x2000}));
  EXPECT_EQ(round_out({0x1000, 0x1000}, 4096), (MemoryRange{0x1000, 0x1000}));
  EXPECT_EQ(round_out({0x1000, 1}, 0x10000), (MemoryRange{0, 0x10000}));
}

}  // namespace
}  // namespace hydrant
