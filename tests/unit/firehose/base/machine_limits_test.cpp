#include "firehose/base/machine/machine_limits.hpp"

#include "firehose/base/machine/cgroup_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr uint64_t kMebi = uint64_t{1} << 20;
constexpr uint64_t kGibi = uint64_t{1} << 30;

// A directory that replaces "/", with the few files of /proc and /sys that a test needs.
class MachineLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "hydrant-limits-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void link(const std::string& path, const std::string& target) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    fs::create_symlink(target, file);
  }
  MachineLimits read() const { return read_machine_limits(root_.c_str()); }
  CgroupMemory cgroup() const { return read_cgroup_memory(root_.c_str()); }
  std::string at(const std::string& path) const { return root_.string() + path; }

  void put_v2(const std::string& group, const std::string& mount_root = "/") {
    put("/proc/self/cgroup", "0::" + group + "\n");
    put("/proc/self/mountinfo",
        "22 1 0:20 / /proc rw - proc proc rw\n"
        "30 23 0:26 " +
            mount_root + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  void put_group_v2(const std::string& directory, const std::string& max, const std::string& high,
                    const std::string& current) {
    put("/sys/fs/cgroup" + directory + "/memory.max", max + "\n");
    put("/sys/fs/cgroup" + directory + "/memory.high", high + "\n");
    put("/sys/fs/cgroup" + directory + "/memory.current", current + "\n");
  }

 private:
  fs::path root_;
};

TEST_F(MachineLimitsTest, EmptyRootKeepsTheDefaults) {
  const MachineLimits limits = read();
  EXPECT_EQ(limits.cgroup_version, 0U);
  EXPECT_EQ(limits.cgroup_limit_bytes, kUnlimited);
  EXPECT_EQ(limits.memory_total_bytes, 0U);
  EXPECT_EQ(limits.memory_available_bytes, kUnlimited) << "unknown is not 0";
  EXPECT_EQ(limits.huge_page_bytes, 0U);
  EXPECT_STREQ(limits.thp_mode, "unknown");
  EXPECT_FALSE(limits.memlock_lifted);
}

TEST_F(MachineLimitsTest, MemoryAndHugePagesAreRead) {
  put("/proc/meminfo",
      "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   24292152 kB\nHugepagesize:     "
      "  2048 kB\n");
  MachineLimits limits = read();
  EXPECT_EQ(limits.memory_total_bytes, uint64_t{24684092} * 1024);
  EXPECT_EQ(limits.memory_available_bytes, uint64_t{24292152} * 1024);
  EXPECT_EQ(limits.huge_page_bytes, 2 * kMebi);
  put("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "4194304\n");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  limits = read();
  EXPECT_EQ(limits.huge_page_bytes, 4 * kMebi) << "transparent huge pages before those of hugetlb";
  EXPECT_STREQ(limits.thp_mode, "madvise");
}

TEST_F(MachineLimitsTest, DamagedFilesCountAsUnread) {
  put("/proc/meminfo", "MemTotal: lots\nHugepagesize:\n");
  put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise] [never");
  put("/proc/self/status", "CapEff:\tzzzz\n");
  const MachineLimits limits = read();
  EXPECT_EQ(limits.memory_total_bytes, 0U);
  EXPECT_EQ(limits.memory_available_bytes, kUnlimited);
  EXPECT_EQ(limits.huge_page_bytes, 0U);
  EXPECT_STREQ(limits.thp_mode, "unknown");
  EXPECT_FALSE(limits.memlock_lifted);
}

TEST_F(MachineLimitsTest, CapabilityLiftsTheMemlockLimit) {
  link("/proc/self/ns/user", "user:[4026531837]");
  put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCapBnd:\t000001ffffffffff\n");
  EXPECT_TRUE(read().memlock_lifted);
  put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000003fff\nCapBnd:\t000001ffffffffff\n");
  EXPECT_FALSE(read().memlock_lifted);
}

TEST_F(MachineLimitsTest, CapabilityInsideAUserNamespaceLiftsNothing) {
  put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
  link("/proc/self/ns/user", "user:[4026532001]");
  EXPECT_FALSE(read().memlock_lifted);
}

TEST_F(MachineLimitsTest, MemlockIsTheProcesssOwn) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 64 * 1024;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  const MachineLimits limits = read();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  EXPECT_EQ(limits.memlock_bytes, 64U * 1024);
  EXPECT_EQ(limits.memlock_hard_bytes,
            before.rlim_max == RLIM_INFINITY ? kUnlimited : uint64_t{before.rlim_max});
}

TEST_F(MachineLimitsTest, CgroupV2SmallestLimitUpTheTreeCounts) {
  put_v2("/a/b");
  put_group_v2("/a/b", "max", "max", "1000");
  put_group_v2("/a", "4294967296", "max", "2000");
  put_group_v2("", "8589934592", "max", "3000");
  const CgroupMemory found = cgroup();
  EXPECT_EQ(found.version, 2U);
  EXPECT_EQ(found.limit_bytes, 4 * kGibi);
  EXPECT_EQ(found.used_bytes, 2000U);
  EXPECT_EQ(found.path, at("/sys/fs/cgroup/a"));
}

TEST_F(MachineLimitsTest, CgroupV2HighCountsWhereItIsSmaller) {
  put_v2("/a");
  put_group_v2("/a", "4294967296", "1073741824", "5");
  EXPECT_EQ(cgroup().limit_bytes, kGibi);
}

TEST_F(MachineLimitsTest, CgroupV2WithoutALimitNamesOurGroup) {
  put_v2("/a");
  put_group_v2("/a", "max", "max", "77");
  const CgroupMemory found = cgroup();
  EXPECT_EQ(found.version, 2U);
  EXPECT_EQ(found.limit_bytes, kUnlimited);
  EXPECT_EQ(found.used_bytes, 77U);
  EXPECT_EQ(found.path, at("/sys/fs/cgroup/a"));
}

TEST_F(MachineLimitsTest, CgroupV1MemoryHierarchyIsFoundAmongOthers) {
  put("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job/7\n0::/elsewhere\n");
  put("/proc/self/mountinfo",
      "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "4096\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8192\n");
  const CgroupMemory found = cgroup();
  EXPECT_EQ(found.version, 1U);
  EXPECT_EQ(found.limit_bytes, kGibi);
  EXPECT_EQ(found.used_bytes, 8192U);
}

TEST_F(MachineLimitsTest, ContainersMountOnlyTheirPartOfTheTree) {
  put_v2("/docker/abc/inner", "/docker/abc");
  put_group_v2("/inner", "max", "max", "1");
  put_group_v2("", "2147483648", "max", "2");
  EXPECT_EQ(cgroup().limit_bytes, 2 * kGibi);
  // "/docker/abcd" is not inside "/docker/abc".
  put_v2("/docker/abcd", "/docker/abc");
  EXPECT_EQ(cgroup().limit_bytes, 2 * kGibi);
}

TEST_F(MachineLimitsTest, GroupOutsideTheNamespaceStopsAtTheMount) {
  put_v2("/../../other");
  put_group_v2("", "1073741824", "max", "2");
  EXPECT_EQ(cgroup().limit_bytes, kGibi);
}

TEST_F(MachineLimitsTest, RealMachinesLimitsArePlausible) {
  const MachineLimits limits = read_machine_limits();
  EXPECT_GT(limits.memory_total_bytes, limits.page_bytes);
  EXPECT_GE(limits.cpu_count, 1U);
  EXPECT_STRNE(limits.kernel_release, "unknown");
  const uint64_t budget = default_budget(kUnlimited).bytes;
  EXPECT_GE(budget, limits.page_bytes);
  EXPECT_LE(budget, limits.memory_total_bytes / 2);
  EXPECT_EQ(budget % limits.page_bytes, 0U);
}

MachineLimits roomy() {
  MachineLimits limits;
  limits.memory_total_bytes = 16 * kGibi;
  return limits;
}

TEST(DefaultBudget, IsHalfOfMemoryWhenNothingElseLimits) {
  const BudgetDecision decision = default_budget(roomy(), kUnlimited);
  EXPECT_EQ(decision.bytes, 8 * kGibi);
  EXPECT_EQ(decision.decided_by, BudgetReason::kPhysicalMemory);
  EXPECT_STREQ(decision.text, "half of the physical memory of 16 GiB");
}

TEST(DefaultBudget, LeavesPartOfTheMemlockLimit) {
  MachineLimits limits = roomy();
  limits.memlock_bytes = 8 * kMebi;
  const BudgetDecision decision = default_budget(limits, kUnlimited);
  EXPECT_EQ(decision.bytes, 7 * kMebi);
  EXPECT_EQ(decision.decided_by, BudgetReason::kMemlock);
  EXPECT_STREQ(decision.text, "7/8 of the memlock limit of 8 MiB (ulimit -l)");
  limits.memlock_lifted = true;
  EXPECT_EQ(default_budget(limits, kUnlimited).bytes, 8 * kGibi);
}

TEST(DefaultBudget, IgnoresMemlockForPinsThatAreNotChargedToIt) {
  MachineLimits limits = roomy();
  limits.memlock_bytes = 8 * kMebi;
  const BudgetDecision decision = default_budget(limits, kUnlimited, MemlockUse::kFree);
  EXPECT_EQ(decision.bytes, 8 * kGibi);
  EXPECT_EQ(decision.decided_by, BudgetReason::kPhysicalMemory);
  EXPECT_EQ(default_budget(limits, 5 * kMebi, MemlockUse::kFree).bytes, 5 * kMebi);
}

TEST(DefaultBudget, NoMemlockLimitHasNoShare) {
  EXPECT_EQ(MemlockShare::of(kUnlimited), kUnlimited);
  EXPECT_EQ(MemlockShare::of(64), 56U);
}

TEST(DefaultBudget, TakesThreeQuartersOfTheControlGroup) {
  MachineLimits limits = roomy();
  limits.cgroup_limit_bytes = 4 * kGibi;
  std::snprintf(limits.cgroup_path, sizeof limits.cgroup_path, "/sys/fs/cgroup/job");
  const BudgetDecision decision = default_budget(limits, kUnlimited);
  EXPECT_EQ(decision.bytes, 3 * kGibi);
  EXPECT_EQ(decision.decided_by, BudgetReason::kCgroup);
  EXPECT_THAT(decision.text, HasSubstr("4 GiB of control group /sys/fs/cgroup/job"));
}

TEST(DefaultBudget, DoesNotExceedTheRegistrar) {
  const BudgetDecision decision = default_budget(roomy(), 10 * kMebi + 1);
  EXPECT_EQ(decision.bytes, 10 * kMebi) << "whole pages";
  EXPECT_EQ(decision.decided_by, BudgetReason::kRegistrar);
}

TEST(DefaultBudget, IsFiniteAndPositiveWhateverIsKnown) {
  const BudgetDecision nothing_known = default_budget(MachineLimits(), kUnlimited);
  EXPECT_EQ(nothing_known.bytes, 4096U);
  EXPECT_EQ(nothing_known.decided_by, BudgetReason::kFloor);
  MachineLimits none = roomy();
  none.memlock_bytes = 0;
  EXPECT_EQ(default_budget(none, kUnlimited).bytes, 4096U);
  EXPECT_STREQ(budget_reason_name(BudgetReason::kFloor), "floor");
}

}  // namespace
}  // namespace hydrant
