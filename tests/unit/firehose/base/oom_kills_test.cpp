// Kills by the kernel for lack of memory, read from files that imitate the kernel's.
#include "firehose/base/machine/oom_kills.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace hydrant {
namespace {

namespace fs = std::filesystem;

class OomKills : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/hydrant_oom_XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    write("/proc/vmstat", "nr_free_pages 5\noom_kill 40\noom_kill_other 9\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void make_version_1(unsigned kills) {
    write("/proc/self/cgroup", "4:memory:/job/one\n");
    write("/proc/self/mountinfo",
          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    const std::string group = "/sys/fs/cgroup/memory/job/one/";
    write(group + "memory.oom_control",
          "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(kills) + "\n");
    write(group + "memory.usage_in_bytes", "209715200\n");
    write(group + "memory.max_usage_in_bytes", "268435456\n");
    write(group + "memory.limit_in_bytes", "268435456\n");
  }
  void make_version_2(unsigned kills) {
    write("/proc/self/cgroup", "0::/job/two\n");
    write("/proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const std::string group = "/sys/fs/cgroup/job/two/";
    write(group + "memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill " +
                                       std::to_string(kills) + "\noom_group_kill 0\n");
    write(group + "memory.current", "104857600\n");
    write(group + "memory.max", "134217728\n");
  }
  std::string text(const OomCounts& before) {
    char line[kOomText];
    return describe_oom_kills(before, line, sizeof line, root_.c_str());
  }
  OomCounts counts() { return read_oom_counts(root_.c_str()); }

  std::string root_;
};

TEST_F(OomKills, VersionOneCountsThemWithUseAndLimit) {
  make_version_1(2);
  const OomCounts before = counts();
  EXPECT_EQ(before.group, 2u);
  EXPECT_EQ(before.machine, 40u);
  EXPECT_EQ(text(before), "");
  make_version_1(3);
  const std::string said = text(before);
  EXPECT_NE(said.find("has killed 1 process of the control group"), std::string::npos) << said;
  EXPECT_NE(said.find("/memory/job/one since"), std::string::npos) << said;
  EXPECT_NE(said.find("in use now: 200 MiB, peak: 256 MiB, limit: 256 MiB"), std::string::npos)
      << said;
}

TEST_F(OomKills, VersionTwoToo) {
  make_version_2(0);
  const OomCounts before = counts();
  make_version_2(2);
  const std::string said = text(before);
  EXPECT_NE(said.find("has killed 2 processes of the control group"), std::string::npos) << said;
  EXPECT_NE(said.find("in use now: 100 MiB, peak: 100 MiB, limit: 128 MiB"), std::string::npos)
      << said;
}

// The kernel counts a victim in its own group, whichever limit was hit.
TEST_F(OomKills, KillsInOtherGroupsAreNotReported) {
  make_version_2(0);
  const OomCounts before = counts();
  write("/proc/vmstat", "oom_kill 41\n");
  EXPECT_EQ(text(before), "");
}

TEST_F(OomKills, WithoutAGroupTheMachineIsNamed) {
  const OomCounts before = counts();
  write("/proc/vmstat", "oom_kill 41\n");
  const std::string said = text(before);
  EXPECT_NE(said.find("1 process of this machine"), std::string::npos) << said;
  EXPECT_EQ(said.find("control group"), std::string::npos) << said;
}

TEST_F(OomKills, NoTextWithoutCounts) {
  fs::remove_all(root_ + "/proc");
  const OomCounts before = counts();
  EXPECT_EQ(before.group + before.machine, 0u);
  EXPECT_EQ(text(before), "");
}

}  // namespace
}  // namespace hydrant
