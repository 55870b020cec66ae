// Memory for other processes: where it lies, and that every process that maps it sees the same bytes.
#include <gasnet_errors.h>
#include <hydrant/alloc.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

TEST(AllocShared, MoreThanTheLimitOnFileSizesIsNoMemory) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              const rlimit limit{32 * kMiB, 32 * kMiB};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit";
              errno = 0;
              if (hydrant_alloc_shared(1, 40 * kMiB) != nullptr) return "40 MiB are allocated";
              if (errno != ENOMEM) return "errno is " + std::to_string(errno);
              return hydrant_alloc_shared(1, 1 * kMiB) == nullptr ? "1 MiB is refused" : "";
            }),
            "");
}

// The text that the child writes to standard error for allocations beyond the limit on file sizes.
std::string lines_of_refusals(const char* log) {
  return run_in_child([log]() -> std::string {
    const rlimit limit{32 * kMiB, 32 * kMiB};
    int ends[2];
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || pipe2(ends, O_NONBLOCK) != 0 ||
        dup2(ends[1], STDERR_FILENO) < 0)
      return "no pipe";
    setenv("HYDRANT_LOG", log, 1);
    if (hydrant_alloc_shared(1, 1 * kMiB) == nullptr) return "1 MiB is refused";
    for (int i = 0; i < 2; ++i) {
      errno = 0;
      if (hydrant_alloc_shared(1, 40 * kMiB) != nullptr || errno != ENOMEM) return "40 MiB";
    }
    char text[1000];
    const ssize_t bytes = read(ends[0], text, sizeof text);
    return std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  });
}

TEST(AllocShared, RefusalByTheFileSizeLimitIsLoggedOnce) {
  const std::string line = lines_of_refusals("info");
  EXPECT_TRUE(line.starts_with("hydrant: info: hydrant_alloc_shared: a memory file of ")) << line;
  EXPECT_NE(line.find("larger than the limit on file sizes, 33554432 bytes: ulimit -f"),
            std::string::npos)
      << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(lines_of_refusals("warning"), "");
}

// A file of the program's under the number of an arena's file that it has closed.
TEST(AllocShared, ForeignFileUnderTheDescriptorIsLeftAlone) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              constexpr size_t kBytes = 16 * kMiB;
              constexpr size_t kFileBytes = 64 * kMiB;
              void* p = hydrant_alloc_shared(1, kBytes);
              hydrant_alloc_location_t location{};
              if (hydrant_alloc_shared_location(p, &location) != GASNET_OK) return "no location";
              std::memset(p, 1, kBytes);
              const int programs = memfd_create("program", MFD_CLOEXEC);
              if (ftruncate(programs, kFileBytes) != 0) return "no file";
              void* data =
                  mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, programs, 0);
              std::memset(data, 2, kFileBytes);
              const int number = location.fd;
              if (dup2(programs, number) != number) return "dup2";
              if (hydrant_alloc_shared_location(p, &location) == GASNET_OK) {
                return "the program's file is shown to peers";
              }
              hydrant_free(p);
              if (hydrant_alloc_trim() < kBytes) return "the arena's memory was not given back";
              for (size_t at = 0; at < kFileBytes; at += kMiB) {
                if (static_cast<char*>(data)[at] != 2) return "the program's file was emptied";
              }
              return run_in_child([&]() -> std::string {
                return fcntl(number, F_GETFD) >= 0 ? "" : "closed in the child";
              });
            }),
            "");
}

TEST(AllocShared, LocationLeadsToTheSameBytes) {
  constexpr size_t kBytes = 5 * kMiB;
  auto* p = static_cast<char*>(hydrant_alloc_shared(1, kBytes));
  ASSERT_NE(p, nullptr);
  write_marks(p, kBytes, 1);
  hydrant_alloc_location_t location{};
  ASSERT_EQ(hydrant_alloc_shared_location(p, &location), GASNET_OK);
  ASSERT_LE(location.offset + kBytes, location.file_bytes);
  void* view =
      mmap(nullptr, location.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, location.fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  auto* seen = static_cast<char*>(view) + location.offset;
  EXPECT_TRUE(has_marks(seen, kBytes, 1));
  write_marks(seen, kBytes, 2);
  EXPECT_TRUE(has_marks(p, kBytes, 2));

  hydrant_alloc_location_t middle{};
  ASSERT_EQ(hydrant_alloc_shared_location(p + 12345, &middle), GASNET_OK);
  EXPECT_EQ(middle.fd, location.fd);
  EXPECT_EQ(middle.offset, location.offset + 12345);

  hydrant_free(p);
  EXPECT_GE(hydrant_alloc_trim(), 4 * kMiB);
  EXPECT_EQ(*seen, 0) << "memory returned to the kernel is empty for the other process, too";
  munmap(view, location.file_bytes);
}

// An overrun at the arena's ends must not change other mappings.
TEST(AllocShared, GuardsStandOnBothSides) {
  constexpr size_t kGuard = 16 * kMiB;
  auto* p = static_cast<char*>(hydrant_alloc_shared(4096, 100));
  ASSERT_NE(p, nullptr);
  hydrant_alloc_location_t location{};
  ASSERT_EQ(hydrant_alloc_shared_location(p, &location), GASNET_OK);
  char* const start = p - location.offset;
  char* const end = start + location.file_bytes;
  const auto is_readable = [](char* at) {
    char got = 0;
    const iovec local{&got, 1};
    const iovec remote{at, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  };
  EXPECT_TRUE(is_readable(start) && is_readable(end - 1));
  for (const size_t beyond : {size_t{1}, size_t{4096}, 8 * kMiB, kGuard}) {
    EXPECT_FALSE(is_readable(start - beyond)) << beyond;
    EXPECT_FALSE(is_readable(end + beyond - 1)) << beyond;
  }
  hydrant_free(p);
}

TEST(AllocShared, FileKeepsItsSize) {
  void* p = hydrant_alloc_shared(4096, 100);
  hydrant_alloc_location_t location{};
  ASSERT_EQ(hydrant_alloc_shared_location(p, &location), GASNET_OK);
  struct stat status {};
  ASSERT_EQ(fstat(location.fd, &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), location.file_bytes);
  EXPECT_EQ(ftruncate(location.fd, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(fcntl(location.fd, F_GETFD) & FD_CLOEXEC, 0);
  hydrant_free(p);
}

TEST(AllocShared, StaysSharedWhenItIsResized) {
  void* p = hydrant_alloc_shared(1, 1000);
  write_marks(p, 1000, 1);
  size_t before = 1000;
  for (const size_t bytes : {size_t{100'000}, 9 * kMiB, size_t{500}}) {
    p = hydrant_realloc(p, bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(has_marks(p, before, 1, std::min(before, bytes)));
    hydrant_alloc_location_t location{};
    EXPECT_EQ(hydrant_alloc_shared_location(p, &location), GASNET_OK);
    write_marks(p, bytes, 1);
    before = bytes;
  }
  hydrant_free(p);
}

TEST(AllocShared, OtherMemoryHasNoLocation) {
  hydrant_alloc_location_t location{};
  void* own = hydrant_alloc(100);
  int local = 0;
  EXPECT_EQ(hydrant_alloc_shared_location(own, &location), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_alloc_shared_location(&local, &location), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_alloc_shared_location(nullptr, &location), GASNET_ERR_BAD_ARG);
  hydrant_free(own);
  void* p = hydrant_alloc_shared(1, 10);
  EXPECT_EQ(hydrant_alloc_shared_location(p, nullptr), GASNET_ERR_BAD_ARG);
  hydrant_free(p);
}

}  // namespace
}  // namespace hydrant::testing
