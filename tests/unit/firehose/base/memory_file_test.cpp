// Memory files: their size cannot change, and a limit on file sizes is an error, not a signal.
#include "firehose/base/machine/memory_file.hpp"

#include "tests/support/child_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <sys/stat.h>

namespace hydrant {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

TEST(MemoryFile, HasASizeThatNoProcessCanChange) {
  const int fd = make_memory_file("test", 3 * kMiB);
  ASSERT_GE(fd, 0);
  struct stat found {};
  EXPECT_EQ(fstat(fd, &found), 0);
  EXPECT_EQ(static_cast<uint64_t>(found.st_size), 3 * kMiB);
  EXPECT_EQ(found.st_blocks, 0) << "a hole";
  for (const off_t size : {off_t{0}, static_cast<off_t>(4 * kMiB)}) {
    EXPECT_EQ(ftruncate(fd, size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  close(fd);
}

TEST(MemoryFile, BeyondTheLimitOnFileSizesIsAnErrorThatNamesIt) {
  const auto failed = testing::run_in_child([]() -> std::string {
    const rlimit limit{kMiB, kMiB};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
    if (make_memory_file("test", kMiB) < 0) return "a file of exactly the limit is refused";
    if (make_memory_file("test", kMiB + 1) >= 0 || errno != EFBIG) return "it is not refused";
    return refuse_memory_file("a test", kMiB + 1) == Status::kResource ? last_error_text() : "";
  });
  EXPECT_THAT(failed, AllOf(HasSubstr("1048577 bytes for a test"), HasSubstr("1048576 bytes"),
                            HasSubstr("ulimit -f")));
}

TEST(MemoryFile, OtherErrorsAreNamed) {
  errno = EMFILE;
  EXPECT_EQ(refuse_memory_file("a test", 4096), Status::kResource);
  EXPECT_THAT(last_error_text(),
              EndsWith("4096 bytes for a test: Too many open files (ulimit -n)"));
  errno = ENOMEM;
  EXPECT_EQ(refuse_memory_file("a test", 4096), Status::kResource);
  EXPECT_THAT(last_error_text(), EndsWith("4096 bytes for a test: Cannot allocate memory"));
}

}  // namespace
}  // namespace hydrant
