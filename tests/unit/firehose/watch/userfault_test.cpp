// Events that the kernel reports, call by call: all of the monitor relies on them.
#include "firehose/watch/userfault.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/fstat_call.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <linux/magic.h>
#include <ostream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <vector>

namespace hydrant {

// For messages of failed expectations.
static void PrintTo(const MemoryChange& change, std::ostream* out) {
  static constexpr const char* kNames[] = {"unmapped", "moved", "removed"};
  *out << kNames[static_cast<int>(change.kind)] << " " << std::hex << change.range.addr << "+"
       << change.range.len << " to " << change.to.addr << std::dec;
}
static bool operator==(const MemoryChange& a, const MemoryChange& b) {
  return a.kind == b.kind && a.range == b.range && a.to == b.to;
}

}  // namespace hydrant

namespace hydrant::testing {
namespace {

using Kind = MemoryChange::Kind;
using Changes = std::vector<MemoryChange>;

class UserfaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    const char* reason = "";
    ASSERT_EQ(userfault_.open(&reason), 0) << reason;
    memory_.replace(0, 16);
    std::memset(memory_.page(), 7, memory_.bytes());
    ASSERT_TRUE(userfault_.watch(range(0, 16)));
  }
  void TearDown() override { userfault_.close(); }

  MemoryRange range(size_t page, size_t n) const { return {memory_.addr(page), n * kPage}; }

  // The releasing call sleeps until its event was read, so it runs in a thread of its own.
  Changes changes_of(const std::function<void()>& release) {
    Changes all;
    std::atomic<bool> done{false};
    Threads threads;
    threads.start([&] {
      release();
      done = true;
    });
    MemoryChange some[4];
    int error = 0;
    EXPECT_TRUE(wait_until([&] {
      const bool last = done;
      const size_t n = userfault_.read(some, 4, &error);
      all.insert(all.end(), some, some + n);
      return last && n == 0;
    }));
    return all;
  }

  MappedMemory memory_{16};
  MappedMemory elsewhere_{4};  // to move to; unmapped after the watch has ended
  Userfault userfault_;
};

TEST_F(UserfaultTest, MunmapIsReported) {
  EXPECT_EQ(changes_of([&] { memory_.unmap(2, 3); }),
            (Changes{{Kind::kUnmapped, range(2, 3), {}}}));
  // No event without a mapping.
  EXPECT_EQ(changes_of([&] { memory_.unmap(2, 3); }), Changes{});
  // Over a hole: the call's range, once.
  EXPECT_EQ(changes_of([&] { memory_.unmap(1, 5); }),
            (Changes{{Kind::kUnmapped, range(1, 5), {}}}));
}

TEST_F(UserfaultTest, MappingOverItIsReportedAndTheNewOneIsNotWatched) {
  EXPECT_EQ(changes_of([&] { memory_.replace(4, 2); }),
            (Changes{{Kind::kUnmapped, range(4, 2), {}}}));
  EXPECT_EQ(changes_of([&] { memory_.unmap(4, 2); }), Changes{});
}

TEST_F(UserfaultTest, MoveIsReportedWithBothAddresses) {
  const Changes changes = changes_of([&] {
    ASSERT_EQ(mremap(memory_.page(4), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                     elsewhere_.page()),
              elsewhere_.page());
    memory_.disown(4, 4);
  });
  const MemoryChange move{Kind::kMoved, range(4, 4), {elsewhere_.addr(), 4 * kPage}};
  EXPECT_NE(std::find(changes.begin(), changes.end(), move), changes.end());
  for (const MemoryChange& change : changes) {
    EXPECT_TRUE(change == move || (change.kind == Kind::kUnmapped && change.range == range(4, 4)))
        << ::testing::PrintToString(change);
  }
  // It is watched where it is now.
  EXPECT_EQ(changes_of([&] { elsewhere_.unmap(0, 4); }),
            (Changes{{Kind::kUnmapped, {elsewhere_.addr(), 4 * kPage}, {}}}));
}

TEST_F(UserfaultTest, MoveOverWatchedMemoryReportsThatToo) {
  const Changes changes = changes_of([&] {
    ASSERT_EQ(mremap(memory_.page(0), 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                     memory_.page(8)),
              memory_.page(8));
    memory_.disown(0, 2);
  });
  const auto overwritten =
      std::count(changes.begin(), changes.end(), MemoryChange{Kind::kUnmapped, range(8, 2), {}});
  const auto moved = std::count(changes.begin(), changes.end(),
                                MemoryChange{Kind::kMoved, range(0, 2), range(8, 2)});
  EXPECT_EQ(overwritten, 1);
  EXPECT_EQ(moved, 1);
}

TEST_F(UserfaultTest, MoveThatLeavesTheMappingBehindIsReported) {
  const Changes changes = changes_of([&] {
    // MREMAP_DONTUNMAP, since Linux 5.7.
    ASSERT_EQ(mremap(memory_.page(4), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED | 4,
                     elsewhere_.page()),
              elsewhere_.page());
  });
  EXPECT_EQ(std::count(changes.begin(), changes.end(),
                       MemoryChange{Kind::kMoved, range(4, 4), {elsewhere_.addr(), 4 * kPage}}),
            1);
}

TEST_F(UserfaultTest, ShrinkingIsReportedAndGrowingIsNot) {
  EXPECT_EQ(changes_of([&] {
              ASSERT_EQ(mremap(memory_.page(0), 16 * kPage, 12 * kPage, 0), memory_.page(0));
              memory_.disown(12, 4);
            }),
            (Changes{{Kind::kUnmapped, range(12, 4), {}}}));
  EXPECT_EQ(changes_of([&] {
              ASSERT_EQ(mremap(memory_.page(0), 12 * kPage, 14 * kPage, 0), memory_.page(0));
            }),
            Changes{});
  (void)changes_of([&] { memory_.replace(12, 4); });
}

// ---- madvise ----

// MADV_GUARD_INSTALL, Linux 6.13: drops the pages, and no userfaultfd reports it.
constexpr int kGuardInstall = 102;
constexpr int kDontneedLocked = 24;  // Linux 5.18

TEST_F(UserfaultTest, AdviceThatDropsPagesIsReported) {
  for (int advice = 0; advice <= 103; ++advice) {
    if (advice == 26) advice = 100;
    if (advice == 100 || advice == 101 || advice == kGuardInstall) continue;  // poison; see below
    SCOPED_TRACE("advice " + std::to_string(advice));
    std::memset(memory_.page(), 7, memory_.bytes());
    int answer = -1;
    const Changes changes =
        changes_of([&] { answer = madvise(memory_.page(4), 4 * kPage, advice); });
    const bool dropped = memory_.page(4)[0] != std::byte{7} || memory_.page(7)[0] != std::byte{7};
    const bool reported = changes == Changes{{Kind::kRemoved, range(4, 4), {}}};
    EXPECT_TRUE(reported || !dropped);
    EXPECT_TRUE(reported || changes.empty());
    const bool must = advice == MADV_DONTNEED || advice == MADV_FREE || advice == kDontneedLocked;
    EXPECT_EQ(reported, must && answer == 0);
    (void)madvise(memory_.page(4), 4 * kPage, MADV_NORMAL);
    (void)changes_of([&] { memory_.replace(0, 16); });  // undoes the change
    ASSERT_TRUE(userfault_.watch(range(0, 16)));
  }
}

// Documents the only unreported release of pages. If this test fails, the kernel reports them, and the
// paragraph on guard pages in docs/pin_cache.md can be deleted.
TEST_F(UserfaultTest, GuardPagesAreNotReported) {
  int answer = -1;
  const Changes changes =
      changes_of([&] { answer = madvise(memory_.page(4), 4 * kPage, kGuardInstall); });
  if (answer != 0) GTEST_SKIP() << "no MADV_GUARD_INSTALL here (Linux 6.13): " << strerror(errno);
  EXPECT_EQ(changes, Changes{});
  ASSERT_EQ(madvise(memory_.page(4), 4 * kPage, kGuardInstall + 1), 0);
  EXPECT_EQ(memory_.page(4)[0], std::byte{0}) << "the pages are dropped all the same";
}

TEST_F(UserfaultTest, ProtectionAndLocksChangeNothing) {
  EXPECT_EQ(changes_of([&] {
              ASSERT_EQ(mprotect(memory_.page(2), 4 * kPage, PROT_NONE), 0);
              ASSERT_EQ(mprotect(memory_.page(2), 4 * kPage, PROT_READ | PROT_WRITE), 0);
              (void)mlock(memory_.page(8), 2 * kPage);
              (void)munlock(memory_.page(8), 2 * kPage);
            }),
            Changes{});
  EXPECT_EQ(memory_.page(2)[0], std::byte{7});
  // A part of it, which was a separate mapping for a moment, is still watched.
  EXPECT_EQ(changes_of([&] { memory_.unmap(3, 1); }),
            (Changes{{Kind::kUnmapped, range(3, 1), {}}}));
}

// ---- changes under way ----

class UserfaultChangeInFlight : public UserfaultTest,
                                public ::testing::WithParamInterface<const char*> {
 protected:
  void release() {
    const std::string how = GetParam();
    if (how == "Munmap") {
      memory_.unmap(4, 4);
    } else if (how == "MapFixed") {
      memory_.replace(4, 4);
    } else if (how == "Dontneed") {
      madvise(memory_.page(4), 4 * kPage, MADV_DONTNEED);
    } else {
      mremap(memory_.page(4), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
             elsewhere_.page());
      memory_.disown(4, 4);
    }
  }
};

TEST_P(UserfaultChangeInFlight, ChangeIsReportedUntilItsCallerReturns) {
  EXPECT_FALSE(userfault_.change_under_way());
  std::atomic<bool> returned{false};
  Threads threads;
  threads.start([&] {
    release();
    returned = true;
  });
  EXPECT_TRUE(wait_until([&] { return userfault_.change_under_way(); }));
  // Without a reader the change stays under way, and the caller stays in its call.
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(userfault_.change_under_way());
    ASSERT_FALSE(returned);
    sched_yield();
  }
  MemoryChange changes[4];
  int error = 0;
  EXPECT_TRUE(wait_until([&] {
    (void)userfault_.read(changes, 4, &error);
    return !userfault_.change_under_way() && returned;
  }));
  threads.join();
  EXPECT_FALSE(userfault_.change_under_way());
}

INSTANTIATE_TEST_SUITE_P(Ways, UserfaultChangeInFlight,
                         ::testing::Values("Munmap", "MapFixed", "Dontneed", "Move"),
                         [](const auto& way) { return std::string(way.param); });

TEST_F(UserfaultTest, ManyWaitingChangesAreReadInPieces) {
  Threads threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.start([this, i] { memory_.unmap(2 * i, 1); });
  }
  std::vector<bool> seen(8, false);
  size_t count = 0;
  EXPECT_TRUE(wait_until([&] {
    MemoryChange some[3];
    int error = 0;
    const size_t n = userfault_.read(some, 3, &error);
    EXPECT_LE(n, 3u);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(some[i].kind, Kind::kUnmapped);
      seen[(some[i].range.addr - memory_.addr()) / kPage / 2] = true;
    }
    count += n;
    return count == 8;
  }));
  threads.join();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 8);
  MemoryChange none[3];
  int error = 0;
  EXPECT_EQ(userfault_.read(none, 3, &error), 0u);
}

// ---- what can be watched ----

TEST_F(UserfaultTest, HolesAreSkipped) {
  MappedMemory other(8);
  other.replace(0, 2);
  other.replace(6, 2);
  other.unmap(2, 4);
  EXPECT_TRUE(userfault_.watch({other.addr(), other.bytes()}));
  EXPECT_EQ(changes_of([&] { other.unmap(7, 1); }),
            (Changes{{Kind::kUnmapped, {other.addr(7), kPage}, {}}}));
  userfault_.close();  // before its memory is unmapped, as there is no reader
}

TEST_F(UserfaultTest, PrivateFileMappingCannotBeWatched) {
  const MemoryFile file(4);
  MappedMemory other(4);
  char path[] = "/tmp/hydrant-userfault-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  unlink(path);
  struct statfs where {};
  ASSERT_EQ(fstatfs(fd, &where), 0);
  if (where.f_type == TMPFS_MAGIC) {
    close(fd);
    GTEST_SKIP() << "files in /tmp are shared memory here, which can be watched";
  }
  ASSERT_EQ(ftruncate(fd, 4 * kPage), 0);
  other.replace_by_file(0, 4, fd, MAP_PRIVATE);
  close(fd);
  EXPECT_FALSE(userfault_.watch({other.addr(), other.bytes()}));
}

TEST_F(UserfaultTest, MemoryWatchedByOthersCannotBeWatched) {
  Userfault second;
  const char* reason = "";
  ASSERT_EQ(second.open(&reason), 0) << reason;
  EXPECT_FALSE(second.watch(range(0, 16)));
  MappedMemory other(4);
  other.replace(0, 4);
  EXPECT_TRUE(second.watch({other.addr(), other.bytes()}));
  EXPECT_FALSE(userfault_.watch({other.addr(), other.bytes()}));
  second.close();
  EXPECT_TRUE(userfault_.watch({other.addr(), other.bytes()})) << "its owner has let go";
  userfault_.close();  // before its memory is unmapped, as there is no reader
}

TEST_F(UserfaultTest, CloseEndsReportsAndReleasesWaiters) {
  std::atomic<bool> returned{false};
  Threads threads;
  threads.start([&] {
    memory_.unmap(0, 4);
    returned = true;
  });
  EXPECT_TRUE(wait_until([&] { return userfault_.change_under_way(); }));
  EXPECT_FALSE(returned);
  userfault_.close();
  threads.join();
  EXPECT_FALSE(userfault_.usable());
  EXPECT_TRUE(userfault_.change_under_way()) << "nothing is known";
  memory_.unmap(4, 4);  // returns: there is no reader to wait for
  EXPECT_EQ(userfault_.descriptor(), -1);
}

TEST_F(UserfaultTest, WatchingDeliversNoFaults) {
  MappedMemory fresh(64);
  fresh.replace(0, 64);
  ASSERT_TRUE(userfault_.watch({fresh.addr(), fresh.bytes()}));
  std::memset(fresh.page(), 3, fresh.bytes());
  MemoryChange changes[4];
  int error = 0;
  EXPECT_EQ(userfault_.read(changes, 4, &error), 0u);
  EXPECT_EQ(error, EAGAIN);
  EXPECT_EQ(fresh.page(63)[0], std::byte{3});
  userfault_.close();  // before its memory is unmapped, as there is no reader
}

// A program may close what it does not know, and open something else under the number.
TEST_F(UserfaultTest, AnotherFileUnderItsNumberIsLeftAlone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_TRUE(userfault_.usable());
  const int number = userfault_.descriptor();
  ASSERT_EQ(dup2(ends[0], number), number);
  EXPECT_FALSE(userfault_.usable());
  EXPECT_TRUE(userfault_.change_under_way());
  EXPECT_FALSE(userfault_.watch(range(0, 1)));
  userfault_.close();
  EXPECT_EQ(userfault_.descriptor(), -1);
  EXPECT_NE(fcntl(number, F_GETFD), -1) << "the file is the program's";
  for (const int fd : {number, ends[0], ends[1]}) close(fd);
}

// The program's own userfaultfd replies as this one would.
TEST_F(UserfaultTest, AnotherUserfaultfdUnderItsNumberIsLeftAlone) {
  Userfault programs;
  const char* reason = "";
  ASSERT_EQ(programs.open(&reason), 0) << reason;
  EXPECT_FALSE(userfault_.change_under_way());
  const int number = userfault_.descriptor();
  ASSERT_EQ(dup2(programs.descriptor(), number), number);
  EXPECT_TRUE(userfault_.change_under_way()) << "nothing is known";
  EXPECT_FALSE(userfault_.usable());
  MappedMemory other(4);
  other.replace(0, 4);
  EXPECT_FALSE(userfault_.watch({other.addr(), other.bytes()}));
  Userfault third;
  ASSERT_EQ(third.open(&reason), 0) << reason;
  EXPECT_TRUE(third.watch({other.addr(), other.bytes()})) << "registered with the program's";
  third.close();
  userfault_.close();
  EXPECT_NE(fcntl(number, F_GETFD), -1) << "it was the program's";
  close(number);
  programs.close();
}

// ---- refusals ----

std::string open_says() {
  Userfault userfault;
  const char* reason = "";
  if (userfault.open(&reason) == 0) return "it was not refused";
  return reason;
}

TEST(UserfaultRefused, ReasonNamesTheRemedy) {
  const auto refused = [](int error, long number = SYS_userfaultfd) {
    return run_in_child([error, number]() -> std::string {
      const std::string wrong = refuse_system_call(number, error);
      return wrong.empty() ? open_says() : wrong;
    });
  };
  EXPECT_NE(refused(EPERM).find("not permitted"), std::string::npos) << refused(EPERM);
  EXPECT_NE(refused(ENOSYS).find("CONFIG_USERFAULTFD"), std::string::npos) << refused(ENOSYS);
  EXPECT_NE(refused(EINVAL).find("5.11"), std::string::npos) << refused(EINVAL);
  EXPECT_NE(refused(EAGAIN).find("EAGAIN"), std::string::npos) << refused(EAGAIN);
  EXPECT_NE(refused(ENODEV).find("allow"), std::string::npos) << refused(ENODEV);
  HYDRANT_NEEDS_USERFAULTFD();
  const std::string no_fstat = refused(EPERM, testing::kFstatCall);
  EXPECT_NE(no_fstat.find("newfstatat"), std::string::npos) << no_fstat;
}

TEST(UserfaultRefused, NoDescriptorLeft) {
  HYDRANT_NEEDS_USERFAULTFD();
  const std::string reason = run_in_child([] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    return open_says();
  });
  EXPECT_NE(reason.find("ulimit -n"), std::string::npos) << reason;
}

}  // namespace
}  // namespace hydrant::testing
