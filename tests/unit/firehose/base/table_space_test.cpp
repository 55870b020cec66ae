// Memory for the cache's tables: zero, listed for the monitor, kept for the next table or unmapped.
#include "firehose/base/table_space.hpp"

#include "firehose/base/watch_windows.hpp"
#include "tests/support/sizes.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kLarge = TableSpace::kMaxShared + kPage;

MemoryRange range_of(const void* p, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(p), bytes};
}
bool is_mapped(const void* p) { return msync(const_cast<void*>(p), kPage, MS_ASYNC) == 0; }
bool is_zero(const void* p, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(p);
  return at[0] == 0 && std::memcmp(at, at + 1, bytes - 1) == 0;
}

class TableSpaceTest : public ::testing::Test {
 protected:
  TableSpace space_;
};

TEST_F(TableSpaceTest, SmallTableIsKeptForTheNextOfItsSize) {
  constexpr size_t kBytes = 3 * kPage;
  void* first = space_.take(kBytes);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_zero(first, kBytes));
  std::memset(first, 0xff, kBytes);
  space_.give(first, kBytes);
  EXPECT_TRUE(space_.overlaps(range_of(first, kBytes)));
  void* other_size = space_.take(kPage);
  EXPECT_NE(other_size, first);
  void* again = space_.take(kBytes + 1);
  EXPECT_EQ(again, first);
  EXPECT_TRUE(is_zero(again, kBytes + 1));
}

TEST_F(TableSpaceTest, TablesAreListedAndMemoryOfTheProgramIsNot) {
  void* program = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(program, MAP_FAILED);
  void* small = space_.take(1);
  void* large = space_.take(kLarge);
  EXPECT_TRUE(space_.overlaps(range_of(small, 1)));
  EXPECT_TRUE(space_.overlaps(range_of(large, kLarge)));
  EXPECT_FALSE(space_.overlaps(range_of(program, kPage)));
  const auto start = reinterpret_cast<uintptr_t>(large);
  EXPECT_TRUE(space_.overlaps({start - kPage, kPage + 1}));
  EXPECT_TRUE(space_.overlaps({start + kLarge - 1, kPage}));
  space_.give(large, kLarge);
  munmap(program, kPage);
}

TEST_F(TableSpaceTest, LargeTableIsUnmapped) {
  void* large = space_.take(kLarge);
  ASSERT_NE(large, nullptr);
  std::memset(large, 1, kLarge);
  space_.give(large, kLarge);
  EXPECT_FALSE(is_mapped(large));
  EXPECT_FALSE(space_.overlaps(range_of(large, kLarge)));
}

TEST_F(TableSpaceTest, EndOfATableIsUnmapped) {
  constexpr size_t kBytes = 16 * kPage;
  constexpr size_t kKept = 4 * kPage;
  auto* table = static_cast<char*>(space_.take_apart(kBytes));
  ASSERT_NE(table, nullptr);
  table[0] = 1;
  space_.shrink(table, kBytes, kKept);
  EXPECT_EQ(table[0], 1);
  EXPECT_TRUE(is_mapped(table + kKept - kPage));
  EXPECT_FALSE(is_mapped(table + kKept));
  EXPECT_TRUE(space_.overlaps({reinterpret_cast<uintptr_t>(table) + kKept - 1, 1}));
  EXPECT_FALSE(space_.overlaps({reinterpret_cast<uintptr_t>(table) + kKept, 1}));
  space_.give(table, kKept);
  EXPECT_FALSE(is_mapped(table));
}

// The monitor has looked up all mappings and registers them next: a table mapped now may be watched.
TEST_F(TableSpaceTest, TableInAWatchedRangeIsNotReused) {
  g_watch_windows.open();
  g_watch_windows.announce({kPage, SIZE_MAX - kPage});
  void* table = space_.take(kPage);
  g_watch_windows.close();
  ASSERT_NE(table, nullptr);
  EXPECT_TRUE(is_zero(table, kPage));
  EXPECT_FALSE(space_.overlaps(range_of(table, kPage)));
  space_.give(table, kPage);
  EXPECT_FALSE(is_mapped(table));
}

TEST_F(TableSpaceTest, ErrnoIsKept) {
  errno = EDOM;
  void* small = space_.take(kPage);
  void* large = space_.take(kLarge);
  space_.give(small, kPage);
  space_.give(large, kLarge);
  EXPECT_EQ(errno, EDOM);
}

TEST_F(TableSpaceTest, RefusalIsNullWithAReason) {
  EXPECT_EQ(space_.take(SIZE_MAX / 2), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

// Half of what the process may have is taken already: a chunk of the usual size is refused.
TEST_F(TableSpaceTest, AddressLimitLeavesRoomForTables) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr rlim_t kMax = size_t{48} << 20;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = kMax;
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    // More than the limit may be mapped already: then take() must fail, as mmap() does.
    void* probe = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool any = probe != MAP_FAILED;
    _exit((space_.take(kPage) != nullptr) == any ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(TableSpaceTest, NoTableIsHandedOutTwice) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  Threads threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.start([this, t] {
      struct Held {
        size_t* table;
        size_t bytes;
      };
      std::minstd_rand random(static_cast<unsigned>(t) + 1);
      std::vector<Held> held;
      for (size_t i = 0; i < kRounds; ++i) {
        if (held.size() < 8 && random() % 2 != 0) {
          const size_t bytes = kPage << random() % 5;
          auto* table = static_cast<size_t*>(space_.take(bytes));
          ASSERT_NE(table, nullptr);
          ASSERT_EQ(table[0], 0u);
          table[0] = table[bytes / sizeof(size_t) - 1] = reinterpret_cast<size_t>(&held) + bytes;
          held.push_back({table, bytes});
        } else if (!held.empty()) {
          const Held last = held.back();
          held.pop_back();
          ASSERT_EQ(last.table[0], reinterpret_cast<size_t>(&held) + last.bytes);
          ASSERT_EQ(last.table[last.bytes / sizeof(size_t) - 1], last.table[0]);
          space_.give(last.table, last.bytes);
        }
      }
      for (const Held& last : held) space_.give(last.table, last.bytes);
    });
  }
  threads.join();
}

}  // namespace
}  // namespace hydrant::testing
