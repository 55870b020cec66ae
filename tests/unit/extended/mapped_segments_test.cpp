// The table of mapped segments that inlined puts and gets read: which ranks and addresses it answers for.
#include "extended/rma/common/mapped_segments.hpp"

#include <gasnetex.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

namespace hydrant {
namespace {

constexpr uintptr_t kStart = 0x10000;
constexpr size_t kLength = 4096;
constexpr intptr_t kShift = 64;

const void* at(uintptr_t addr) { return reinterpret_cast<const void*>(addr); }

class MappedSegments : public ::testing::Test {
 protected:
  MappedSegments() { hide_segments(); }
  ~MappedSegments() override { hide_segments(); }

  static bool has_small(gex_Rank_t rank, uintptr_t addr) {
    return hydrant_small_segment(&hydrant_world, rank, at(addr)) != nullptr;
  }
  bool has(gex_Rank_t rank, uintptr_t addr, size_t bytes) const {
    return hydrant_segment_of(&hydrant_world, rank, at(addr), this, bytes) != nullptr;
  }
};

TEST_F(MappedSegments, AnswerForNobodyWhileEmpty) {
  EXPECT_FALSE(has_small(0, 0));
  EXPECT_FALSE(has(0, 0, 0));
  EXPECT_FALSE(has(HYDRANT_MAPPED_SEGMENTS, 0, 1));
}

TEST_F(MappedSegments, EndWhereTheSegmentEnds) {
  show_segment(3, {kStart, kLength}, kShift);
  EXPECT_TRUE(has(3, kStart, kLength));
  EXPECT_FALSE(has(3, kStart, kLength + 1));
  EXPECT_FALSE(has(3, kStart - 1, 1));
  EXPECT_FALSE(has(3, kStart + kLength, 0));
  EXPECT_FALSE(has(3, kStart + 1, SIZE_MAX));
  EXPECT_TRUE(has_small(3, kStart));
  EXPECT_TRUE(has_small(3, kStart + kLength - HYDRANT_RMA_INLINE));
  EXPECT_FALSE(has_small(3, kStart + kLength - HYDRANT_RMA_INLINE + 1));
  EXPECT_FALSE(has_small(3, kStart - 1));
  EXPECT_EQ(hydrant_small_segment(&hydrant_world, 3, at(kStart))->shift, kShift);
}

TEST_F(MappedSegments, OfFewBytesHaveNoSmallCopies) {
  show_segment(0, {kStart, HYDRANT_RMA_INLINE - 1}, 0);
  EXPECT_FALSE(has_small(0, kStart));
  EXPECT_TRUE(has(0, kStart, HYDRANT_RMA_INLINE - 1));
}

TEST_F(MappedSegments, AnswerForTheWholeJobAlone) {
  show_segment(0, {kStart, kLength}, 0);
  EXPECT_EQ(hydrant_small_segment(nullptr, 0, at(kStart)), nullptr);
  EXPECT_EQ(hydrant_segment_of(nullptr, 0, at(kStart), this, 1), nullptr);
  EXPECT_EQ(hydrant_segment_of(&hydrant_world, 0, at(kStart), nullptr, 1), nullptr);
}

TEST_F(MappedSegments, NeverAnswerForAnotherRankOfTheSameEntry) {
  constexpr gex_Rank_t kFirst = 5;
  constexpr gex_Rank_t kSecond = kFirst + HYDRANT_MAPPED_SEGMENTS;
  show_segment(kFirst, {kStart, kLength}, 0);
  show_segment(kSecond, {2 * kStart, kLength}, 0);
  EXPECT_TRUE(has(kFirst, kStart, 8));
  EXPECT_FALSE(has(kSecond, kStart, 8));
  EXPECT_FALSE(has(kSecond, 2 * kStart, 8));
  EXPECT_FALSE(has_small(kSecond, kStart));
  EXPECT_FALSE(has(GEX_RANK_INVALID, kStart, 8));
}

// The reader sees all of an entry or nothing: an address below the segment's length must not pass while the
// entry's own address is still 0, nor a shift be missing.
TEST_F(MappedSegments, AreSeenWholeWhileTheyAreEntered) {
  for (int round = 0; round < 2000; ++round) {
    std::thread writer([] { show_segment(7, {kStart, kLength}, kShift); });
    for (;;) {
      EXPECT_FALSE(has(7, 8, 8));
      const hydrant_mapped_segment* entry = hydrant_small_segment(&hydrant_world, 7, at(kStart));
      if (entry == nullptr) continue;
      EXPECT_EQ(entry->shift, kShift);
      break;
    }
    writer.join();
    hide_segments();
  }
}

}  // namespace
}  // namespace hydrant
