// The file of a node's segments: slices from sizes that other ranks have sent, and refusals to map them.
#include "am/segment/segment_memory.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/status.hpp"
#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>

#include <string>
#include <sys/resource.h>

namespace hydrant {
namespace {

constexpr uint64_t kHuge = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

TEST(SegmentSlices, AreAdjacentInWholeHugePages) {
  std::vector<SegmentSlice> slices;
  ASSERT_EQ(lay_out_slices({1, 3, 5, 7}, {kPage, 0, kHuge, kHuge + kPage}, &slices), Status::kOk);
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0].start, 0U);
  EXPECT_EQ(slices[1].start, kHuge);
  EXPECT_EQ(slices[2].start, kHuge);
  EXPECT_EQ(slices[3].start, 2 * kHuge);
  EXPECT_EQ(slices[3].rank, 7U);
  EXPECT_EQ(slices[3].size, kHuge + kPage);
}

TEST(SegmentSlices, SumBeyondTheLargestFileIsRejected) {
  const std::vector<uint64_t> cases[] = {
      {kPage, UINT64_MAX - kPage + 1},         // wraps to a small file
      {uint64_t{1} << 63, uint64_t{1} << 63},  // wraps to 0
      {kPage, uint64_t{1} << 63},              // a negative offset
      {kPage, INT64_MAX - kPage + 1},          // its end is rounded up beyond the largest
      {uint64_t{1} << 62, uint64_t{1} << 62},  // only the sum
      {INT64_MAX - kHuge + 1, kPage},          // room for the first one alone
  };
  for (const std::vector<uint64_t>& sizes : cases) {
    std::vector<SegmentSlice> slices(1);
    EXPECT_EQ(lay_out_slices({0, 1}, sizes, &slices), Status::kResource) << sizes[1];
    EXPECT_NE(std::string(last_error_text()).find("GASNET_MAX_SEGSIZE"), std::string::npos);
    EXPECT_EQ(slices.size(), 1U);
  }
  std::vector<SegmentSlice> slices;
  EXPECT_EQ(lay_out_slices({0, 1}, {INT64_MAX - 2 * kHuge + 1, kHuge}, &slices), Status::kOk);
  EXPECT_EQ(lay_out_slices({0, 1}, {INT64_MAX - 2 * kHuge + 1, kHuge + kPage}, &slices),
            Status::kResource);
}

TEST(SegmentSlices, PartialPagesAreRejected) {
  std::vector<SegmentSlice> slices;
  for (const uint64_t size : {uint64_t{1}, kPage + 1, UINT64_MAX}) {
    EXPECT_EQ(lay_out_slices({4, 6}, {kPage, size}, &slices), Status::kBroken) << size;
    EXPECT_NE(std::string(last_error_text()).find("rank 6"), std::string::npos);
    EXPECT_TRUE(slices.empty());
  }
}

TEST(SegmentSlices, RefusalOfTheSmallestSegmentNamesTheLimitAlone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space without a limit";
#else
  for (const bool is_smallest : {true, false}) {
    const std::string text = testing::run_in_child([&]() -> std::string {
      std::vector<SegmentSlice> slices{{.size = is_smallest ? kPage : kHuge}};
      rlimit limit{uint64_t{1} << 40, RLIM_INFINITY};
      if (setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
      limit.rlim_cur = read_address_space().used_bytes + kHuge / 2;
      if (setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
      if (map_slices(-1, 0, &slices) != Status::kResource) return "not refused";
      return last_error_text();
    });
    EXPECT_EQ(text.find("too small for any segment: raise it (ulimit -v)") != std::string::npos,
              is_smallest)
        << text;
    EXPECT_EQ(text.find("ask for less") == std::string::npos, is_smallest) << text;
  }
#endif
}

}  // namespace
}  // namespace hydrant
