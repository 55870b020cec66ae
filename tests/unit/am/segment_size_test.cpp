// The grammar of GASNET_MAX_SEGSIZE, and the limits of the process.
#include "am/segment/segment_size.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>

namespace hydrant {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t parsed(const char* text, uint64_t available = 8 * kGiB, uint32_t ranks = 4) {
  uint64_t bytes = 1;
  EXPECT_EQ(parse_segment_size(text, available, ranks, &bytes), Status::kOk) << text;
  return bytes;
}

TEST(SegmentSize, SizesCountPerProcessByDefault) {
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

TEST(SegmentSize, FractionsCountPerHostByDefault) {
  EXPECT_EQ(parsed("0.5/H"), kGiB);
  EXPECT_EQ(parsed("0.5"), kGiB);
  EXPECT_EQ(parsed("0.5/P"), 4 * kGiB);
  EXPECT_EQ(parsed("1/H"), 2 * kGiB);
}

TEST(SegmentSize, SizesAreRoundedToPagesAndLimited) {
  EXPECT_EQ(parsed("10000B"), 8192u);
  EXPECT_EQ(parsed("1e30G"), uint64_t{1} << 44);
}

TEST(SegmentSize, InvalidSizesAreRefusedWithTheirText) {
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

TEST(SegmentSize, ShareBelowAPageIsRefused) {
  uint64_t bytes = 0;
  EXPECT_EQ(parse_segment_size("8K/H", kGiB, 3, &bytes), Status::kBadArg);
  EXPECT_NE(std::string(last_error_text()).find("3 ranks"), std::string::npos) << last_error_text();
}

// ---- limits of the process ----

TEST(SegmentLimits, OneFileHasRoomForAllSegments) {
  EXPECT_EQ(max_in_file(100 * kMiB + 5000, 1), 100 * kMiB + 4096);
  EXPECT_EQ(max_in_file(100 * kMiB, 2), 50 * kMiB);
  EXPECT_EQ(max_in_file(100 * kMiB, 3), 32 * kMiB) << "slices begin at whole huge pages";
  EXPECT_EQ(max_in_file(5 * kMiB, 3), 0U);
}

TEST(SegmentLimits, AddressSpaceHasRoomForGuardsAndTheProgram) {
  constexpr uint64_t kGuards = 32 * kMiB;
  uint64_t last = 0;
  for (uint64_t left = 0; left < 8 * kGiB; left += left / 16 + 1000) {
    for (const uint32_t ranks : {1U, 2U, 7U, 64U}) {
      const uint64_t most = max_in_address_space(left, ranks);
      EXPECT_EQ(most % 4096, 0U);
      // With guards, or so small that there need be none.
      const uint64_t mapped = most > kGuards ? most + kGuards : most;
      EXPECT_LE(mapped * ranks, left - left / 8) << left;
      if (ranks != 1) continue;
      EXPECT_GE(most, last) << left;
      last = most;
    }
  }
  EXPECT_GT(max_in_address_space(8 * kGiB, 2), 3 * kGiB);
  EXPECT_EQ(max_in_address_space(kMiB, 1), 0U);
}

TEST(SegmentLimits, MaximumIsAtMostWhatTheLimitOnFileSizesAllows) {
  const auto failed = testing::run_in_child([]() -> std::string {
    const rlimit limit{96 * kMiB, 96 * kMiB};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
    char why[kMaxSegmentText];
    for (const char* asked : {"", "1G"}) {
      setenv("GASNET_MAX_SEGSIZE", asked, 1);
      if (choose_max_segment(2) != Status::kOk) return last_error_text();
      if (max_local_segment() != 48 * kMiB || max_segment_is_asked_for()) return "not the limit";
      if (max_attempted_segment() <= 48 * kMiB) return "more is not attempted";
      const std::string text = explain_max_segment(why, sizeof why);
      if (text.find("96 MiB (ulimit -f)") == std::string::npos) return text;
    }
    setenv("GASNET_MAX_SEGSIZE", "16M", 1);
    if (choose_max_segment(2) != Status::kOk) return last_error_text();
    return max_local_segment() == 16 * kMiB && max_segment_is_asked_for() ? "" : "not 16 MiB";
  });
  EXPECT_EQ(failed, "");
}

TEST(SegmentLimits, AddressSpaceWithoutRoomForAPageIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space without a limit";
#else
  const auto failed = testing::run_in_child([]() -> std::string {
    unsetenv("GASNET_MAX_SEGSIZE");
    rlimit limit{uint64_t{1} << 40, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
    for (const uint64_t left : {3 * kMiB, 32 * kMiB}) {
      limit.rlim_cur = read_address_space().used_bytes + left;
      if (setrlimit(RLIMIT_AS, &limit) != 0) return "setrlimit";
      if (choose_max_segment(4) != Status::kOk) return last_error_text();
      const bool refused = left == 3 * kMiB;
      if (count_process_limits() != (refused ? Status::kResource : Status::kOk)) return "status";
      const std::string text = refused ? last_error_text() : "ulimit -v";
      if (text.find("ulimit -v") == std::string::npos) return text;
    }
    return "";
  });
  EXPECT_EQ(failed, "");
#endif
}

// ---- available memory, read from files that imitate the kernel's ----

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/hydrant_available_XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    write("/proc/meminfo",
          "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nCommitLimit: 3145728 kB\n"
          "Committed_AS: 1048576 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  AvailableMemory found() { return find_available_memory(root_.c_str()); }

  std::string root_;
};

TEST_F(AvailableMemoryTest, IsTheMachinesMemoryWithoutOtherLimits) {
  write("/proc/sys/vm/overcommit_memory", "0\n");
  EXPECT_EQ(found().bytes, 4 * kGiB);
  EXPECT_STREQ(found().limited_by, "the machine's memory");
}

TEST_F(AvailableMemoryTest, IsLimitedByTheControlGroup) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/job/memory.max", "1073741824\n");
  write("/sys/fs/cgroup/job/memory.current", "268435456\n");
  EXPECT_EQ(found().bytes, kGiB / 4 * 3);
  EXPECT_NE(std::string(found().limited_by).find("the control group /"), std::string::npos)
      << found().limited_by;
}

TEST_F(AvailableMemoryTest, IsLimitedByTheCommitLimitWithoutOvercommit) {
  write("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(found().bytes, 2 * kGiB);
  EXPECT_NE(std::string(found().limited_by).find("overcommit_memory"), std::string::npos);
}

}  // namespace
}  // namespace hydrant
