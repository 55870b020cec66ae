#include "tests/unit/firehose/watch/hooks/call_spy.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr off_t kLen = 65536;

class FileHooks : public ::testing::Test {
 protected:
  FileHooks() : fd_(memfd_create("hydrant-test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kLen), 0);
  }
  ~FileHooks() override { close(fd_); }

  off_t file_len() const {
    struct stat status = {};
    fstat(fd_, &status);
    return status.st_size;
  }
  // files_changed() must be called once before the real call and once after it.
  template <typename Call>
  void expect_file_change(const char* name, Call&& call) {
    const uint64_t before = FakeMonitor::calls().file_changes;
    CallSpy::take();
    call();
    const SpiedCall seen = CallSpy::take();
    EXPECT_EQ(seen.name, name);
    EXPECT_EQ(seen.calls.file_changes, before + 1) << name;
    EXPECT_EQ(FakeMonitor::calls().file_changes, before + 2) << name;
  }

  FakeMonitor monitor_;
  CallSpy spy_;
  int fd_;
};

TEST_F(FileHooks, TruncationIsReportedBeforeAndAfter) {
  expect_file_change("ftruncate", [&] { EXPECT_EQ(ftruncate(fd_, kLen / 2), 0); });
  EXPECT_EQ(file_len(), kLen / 2);
  expect_file_change("ftruncate", [&] { EXPECT_EQ(ftruncate64(fd_, kLen), 0); });
  EXPECT_EQ(file_len(), kLen);
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  expect_file_change("truncate", [&] { EXPECT_EQ(truncate(path.c_str(), 4096), 0); });
  EXPECT_EQ(file_len(), 4096);
  expect_file_change("truncate", [&] { EXPECT_EQ(truncate64(path.c_str(), 0), 0); });
}

TEST_F(FileHooks, HolesAreReportedBeforeAndAfter) {
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  expect_file_change("fallocate", [&] { EXPECT_EQ(fallocate(fd_, kPunch, 0, 4096), 0); });
  expect_file_change("fallocate", [&] { EXPECT_EQ(fallocate64(fd_, kPunch, 4096, 4096), 0); });
  for (const int mode : {FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_INSERT_RANGE}) {
    expect_file_change("fallocate", [&] { fallocate(fd_, mode, 0, 4096); });
  }
}

TEST_F(FileHooks, AllocationIsNotReported) {
  const uint64_t before = FakeMonitor::calls().file_changes;
  EXPECT_EQ(fallocate(fd_, 0, 0, 2 * kLen), 0);
  EXPECT_EQ(fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, 4 * kLen), 0);
  EXPECT_EQ(posix_fallocate(fd_, 0, 3 * kLen), 0);
  EXPECT_EQ(FakeMonitor::calls().file_changes, before);
  EXPECT_EQ(file_len(), 3 * kLen);
}

TEST_F(FileHooks, RefusalsAreTheKernels) {
  errno = 0;
  EXPECT_EQ(ftruncate(-1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(ftruncate(fd_, -1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(truncate("/nowhere/at/all", 0), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(fallocate(-1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(fallocate(fd_, FALLOC_FL_PUNCH_HOLE, 0, 4096), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = ERANGE;
  EXPECT_EQ(ftruncate(fd_, kLen), 0);
  EXPECT_EQ(errno, ERANGE);
}

TEST_F(FileHooks, ThreadEndingInsideFallocateHasReportedTwice) {
  const uint64_t before = FakeMonitor::calls().file_changes;
  std::thread([&] {
    CallSpy::end_thread_in_next_call();
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
    ADD_FAILURE() << "the thread has not ended";
  }).join();
  EXPECT_EQ(FakeMonitor::calls().file_changes, before + 2);
}

}  // namespace
}  // namespace hydrant::testing
