// Memory for other processes: where it lies, and that whoever maps it sees the same bytes.
#include <gasnet_errors.h>
#include <hydrant/alloc.h>

#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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
  EXPECT_EQ(*seen, 0) << "what was given back is gone for the other process, too";
  munmap(view, location.file_bytes);
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
