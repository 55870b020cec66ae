#include "firehose/cache/region/stream_detector.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace hydrant {
namespace {

using testing::kPage;
constexpr uintptr_t kBase = uintptr_t{1} << 40;
constexpr size_t kMaxAhead = 64 * kPage;

MemoryRange at(size_t page, size_t pages = 1) { return {kBase + page * kPage, pages * kPage}; }

class StreamDetectorTest : public ::testing::Test {
 protected:
  StreamDetector::Advice miss(size_t page, size_t pages = 1, uint64_t now_ns = 1) {
    return detector_.note_miss(at(page, pages), kMaxAhead, now_ns);
  }
  StreamDetector detector_;
};

TEST_F(StreamDetectorTest, SecondContinuationStartsAStreamThatDoublesUpToTheLimit) {
  EXPECT_EQ(miss(0).range, at(0));
  EXPECT_EQ(miss(1).range, at(1));
  size_t next = 2;
  for (size_t pages = 2; pages < 64; next += pages, pages *= 2) {
    EXPECT_EQ(miss(next).range, at(next, pages));
  }
  EXPECT_EQ(miss(next).range, at(next, 64));
  EXPECT_EQ(miss(next + 64).range, at(next + 64, 64)) << "longer than the limit";
}

TEST_F(StreamDetectorTest, FollowsDownwardStreams) {
  miss(999);
  EXPECT_EQ(miss(998).range, at(998));
  const StreamDetector::Advice advice = miss(997);
  EXPECT_EQ(advice.range, at(996, 2));
  EXPECT_TRUE(advice.down);
  EXPECT_EQ(miss(995).range, at(992, 4));
}

TEST_F(StreamDetectorTest, FollowsAConstantDistanceThatIsNotTooLarge) {
  miss(0), miss(4);
  EXPECT_EQ(miss(8).range, at(8, 5)) << "this one and the next";
  EXPECT_EQ(miss(16).range, at(16, 9));
  EXPECT_EQ(miss(28).range, at(28, 17));
  EXPECT_EQ(miss(49).range, at(49)) << "another distance";
  miss(1000), miss(1005);
  EXPECT_EQ(miss(1010).range, at(1010)) << "four fifths would be for nothing";
}

TEST_F(StreamDetectorTest, RequestsThatReachOverTheEndContinueToo) {
  miss(0, 3), miss(2, 3);
  EXPECT_EQ(miss(4, 3).range, at(4, 6));
  EXPECT_EQ(miss(9, 3).range, at(9, 12));
}

TEST_F(StreamDetectorTest, RepeatedRequestDoesNotAdvanceTheStream) {
  miss(0), miss(1), miss(2);
  EXPECT_EQ(miss(2).range, at(2));
  EXPECT_EQ(miss(4).range, at(4, 4));
}

TEST_F(StreamDetectorTest, StreamsRunSideBySide) {
  for (size_t i = 0; i < 2; ++i) {
    for (size_t s = 0; s < 8; ++s) miss(1000 * s + i);
  }
  for (size_t s = 0; s < 8; ++s) EXPECT_EQ(miss(1000 * s + 2).range, at(1000 * s + 2, 2));
}

TEST_F(StreamDetectorTest, OtherMissesPauseAStreamAndFinallyEndIt) {
  miss(0), miss(1), miss(2), miss(4), miss(8);
  for (size_t i = 0; i < 70; ++i) miss(100'000 + 1000 * i);
  EXPECT_EQ(miss(16).range, at(16, 8)) << "as long as before the pause, not twice that";
  for (size_t i = 0; i < 500; ++i) miss(1'000'000 + 1000 * i);
  EXPECT_EQ(miss(24).range, at(24)) << "still known";
}

TEST_F(StreamDetectorTest, WasteRaisesThePatienceAndUseLowersIt) {
  detector_.note_outcome(true);
  EXPECT_EQ(detector_.patience(), 4u);
  miss(0), miss(1), miss(2);
  EXPECT_EQ(miss(3).range, at(3));
  EXPECT_EQ(miss(4).range, at(4, 2)) << "a long stream is believed in the end";
  for (int i = 0; i < 50; ++i) detector_.note_outcome(true);
  EXPECT_EQ(detector_.patience(), 512u);
  for (int i = 0; i < 50; ++i) detector_.note_outcome(false);
  EXPECT_EQ(detector_.patience(), 2u);
}

TEST_F(StreamDetectorTest, RefusedBorderIsRememberedForASecond) {
  constexpr size_t kBorder = 200;
  size_t refused = 0;
  size_t page = 0;
  const auto walk = [&](size_t from, uint64_t now_ns) {
    for (page = from; page < kBorder;) {
      const StreamDetector::Advice advice = miss(page, 1, now_ns);
      if (advice.range.end() > at(kBorder).addr) {
        ++refused;
        detector_.note_refused(at(page), advice.range, now_ns);
        ++page;
        continue;
      }
      if (advice.range.len > kPage) detector_.note_granted(advice.range, advice.down);
      page += advice.range.len / kPage;
    }
  };
  walk(0, 1);
  EXPECT_GE(refused, 1u);
  EXPECT_LE(refused, 7u) << "it does not learn";
  refused = 0;
  walk(100, 2);
  EXPECT_LE(refused, 1u) << "the next stream pays again";
  detector_.forget_borders(at(kBorder - 1, 2));
  refused = 0;
  walk(0, 3);
  EXPECT_GE(refused, 1u) << "the border was not forgotten with its memory";
}

TEST_F(StreamDetectorTest, CutStreamStartsAgain) {
  miss(0), miss(1), miss(2), miss(4);
  EXPECT_EQ(miss(8).range, at(8, 8));
  detector_.note_cut(at(8), at(8));
  EXPECT_EQ(miss(9).range, at(9, 2));
  EXPECT_EQ(miss(14).range, at(14)) << "inside what was only advised";
}

TEST_F(StreamDetectorTest, StreamEarnsEvictionsByMovingOn) {
  miss(0), miss(1);
  EXPECT_FALSE(miss(2).earned);
  size_t page = 4;
  StreamDetector::Advice advice;
  for (int i = 0; i < 12; ++i) {
    advice = miss(page);
    page += advice.range.len / kPage;
  }
  EXPECT_EQ(advice.range.len, kMaxAhead);
  EXPECT_TRUE(advice.earned);
}

}  // namespace
}  // namespace hydrant
