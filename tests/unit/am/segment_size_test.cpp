// The grammar of GASNET_MAX_SEGSIZE.
#include "am/segment_size.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t parsed(const char* text, uint64_t available = 8 * kGiB, uint32_t ranks = 4) {
  uint64_t bytes = 1;
  EXPECT_EQ(parse_segment_size(text, available, ranks, &bytes), Status::kOk) << text;
  return bytes;
}

TEST(SegmentSize, SizesAreOfAProcessUnlessTheySayHost) {
  EXPECT_EQ(parsed("512MB/P"), 512 * kMiB);
  EXPECT_EQ(parsed("512MB"), 512 * kMiB);
  EXPECT_EQ(parsed("4GB/H"), kGiB);
  EXPECT_EQ(parsed("4g/h"), kGiB);
  EXPECT_EQ(parsed("64k"), 64u << 10);
  EXPECT_EQ(parsed("1T"), kGiB << 10);
  EXPECT_EQ(parsed("8192B/p"), 8192u);
  EXPECT_EQ(parsed("1.5M"), kMiB + kMiB / 2);
  EXPECT_EQ(parsed("2"), 2 * kMiB) << "a plain number above 1 is MiB";
}

TEST(SegmentSize, FractionsAreOfAHostUnlessTheySayProcess) {
  EXPECT_EQ(parsed("0.5/H"), kGiB);
  EXPECT_EQ(parsed("0.5"), kGiB);
  EXPECT_EQ(parsed("0.5/P"), 4 * kGiB);
  EXPECT_EQ(parsed("1/H"), 2 * kGiB);
}

TEST(SegmentSize, WholePagesAndABound) {
  EXPECT_EQ(parsed("10000B"), 8192u);
  EXPECT_EQ(parsed("1e30G"), uint64_t{1} << 44);
}

TEST(SegmentSize, WhatIsNoSizeIsRefusedWithATextThatShowsIt) {
  for (const char* text :
       {"",      "x",     "/",     "/P", "512MB/", "512MB/PP",      "512MB/Q", "-5M",
        "0",     "0.0/H", "5MBB",  "5Q", "5 M",    "nan",           "nan/H",   "inf",
        "inf/P", "0x10M", "5M/P ", "1B", "4095B",  "0.0000000001/H"}) {
    uint64_t bytes = 77;
    EXPECT_EQ(parse_segment_size(text, 8 * kGiB, 4, &bytes), Status::kBadArg) << text;
    EXPECT_EQ(bytes, 77u) << text;
    EXPECT_NE(std::string(last_error_text()).find(std::string("'") + text + "'"), std::string::npos)
        << last_error_text();
  }
}

TEST(SegmentSize, TooManyRanksForAHostsShareIsSaid) {
  uint64_t bytes = 0;
  EXPECT_EQ(parse_segment_size("8K/H", kGiB, 3, &bytes), Status::kBadArg);
  EXPECT_NE(std::string(last_error_text()).find("3 ranks"), std::string::npos) << last_error_text();
}

}  // namespace
}  // namespace hydrant
