// The monitor through its public interface: notifications of clients, and coverage of memory.
#include <hydrant/monitor.h>

#include "firehose/base/log.hpp"
#include "firehose/base/machine/time_slice.hpp"
#include "firehose/watch/userfault.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/listener.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// The number of its thread, or 0.
int find_reader() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name == "hydrant-watch") return std::stoi(task.path().filename());
  }
  return 0;
}
bool has_reader() { return find_reader() != 0; }

TEST(MonitorApi, IsOnePerVersion) {
  const hydrant_monitor_t* monitor = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  ASSERT_NE(monitor, nullptr);
  EXPECT_EQ(monitor->size, sizeof *monitor);
  EXPECT_EQ(monitor->version, HYDRANT_MONITOR_VERSION);
  EXPECT_EQ(hydrant_monitor(HYDRANT_MONITOR_VERSION), monitor);
  EXPECT_EQ(hydrant_monitor(HYDRANT_MONITOR_VERSION + 1), nullptr);
  EXPECT_EQ(hydrant_monitor(0), nullptr);
  ASSERT_NE(monitor->sequence, nullptr);
  ASSERT_NE(monitor->removals, nullptr);
}

// The header promises this; 0 means that a thread is in no call.
TEST(MonitorApi, RemovalsAreCountedFromOne) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              return shown(the_monitor().removals) >= 1 ? "" : "0 before anything was watched";
            }),
            "");
}

TEST(MonitorApi, NoReaderStartsWithoutAWatch) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              MappedMemory memory(4);
              memory.replace(0, 4);
              if (cover(memory, 0, 4, HYDRANT_COVER_ONLY_ARENAS) != HYDRANT_COVER_NONE) {
                return "covered";
              }
              the_monitor().settle();
              the_monitor().sync();
              if (the_monitor().quiet(0) != 0) return "not quiet";
              the_monitor().invalidate(memory.addr(), kPage);
              the_monitor().note_pinned(memory.addr(), kPage);
              if (has_reader()) return "a reader runs";
              return the_monitor().reason();
            }),
            "");
}

// ---- clients ----

TEST(MonitorClients, AtMostSixtyFourAreNotified) {
  std::deque<Listener> all;
  while (all.size() < 100 && (all.empty() || all.back().number() >= 0)) all.emplace_back();
  ASSERT_EQ(all.size(), 65u) << "64, and one that was refused";
  the_monitor().invalidate(0x10000, kPage);
  size_t told = 0;
  for (const Listener& listener : all) told += listener.count();
  EXPECT_EQ(told, 64u);
  const int number = all[10].number();
  all[10].leave();
  const Listener another;
  EXPECT_EQ(another.number(), number);
}

TEST(MonitorClients, InvalidationIsForwardedUnchanged) {
  Listener one;
  Listener two;
  the_monitor().invalidate(0x12345, 77);
  for (const Listener* listener : {&one, &two}) {
    ASSERT_EQ(listener->count(), 1u);
    EXPECT_EQ(listener->told(0), (MemoryRange{0x12345, 77}));
  }
  two.leave();
  the_monitor().invalidate(0x12345, 0);
  the_monitor().invalidate(UINTPTR_MAX - 10, 100);
  EXPECT_EQ(one.count(), 1u) << "no range, nothing to forget";
  the_monitor().invalidate(0x1000, 1);
  EXPECT_EQ(one.count(), 2u);
  EXPECT_EQ(two.count(), 1u) << "it has left";
}

TEST(MonitorClients, FilesChangedAndPinnedAskAll) {
  Listener one;
  Listener two;
  the_monitor().files_changed();
  EXPECT_EQ(one.vouched() + two.vouched(), 2u);
  EXPECT_EQ(the_monitor().pinned(0x1000, 1), 0);
  two.say_pinned(7);
  EXPECT_NE(the_monitor().pinned(0x1000, 1), 0);
  EXPECT_EQ(the_monitor().pinned(0x1000, 0), 0);
}

TEST(MonitorClients, UnsubscribeWaitsForRunningCalls) {
  Listener listener;
  listener.hold_back(true);
  Threads threads;
  threads.start([] { the_monitor().invalidate(0x1000, 1); });
  ASSERT_TRUE(wait_until([&] { return listener.inside(); }));
  std::atomic<bool> left{false};
  threads.start([&] {
    listener.leave();
    left = true;
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(left);
    sched_yield();
  }
  listener.hold_back(false);
  EXPECT_TRUE(wait_until([&] { return left.load(); }));
  EXPECT_FALSE(listener.inside());
  threads.join();
}

TEST(MonitorClients, UnknownNumbersAreIgnored) {
  the_monitor().unsubscribe(-1);
  the_monitor().unsubscribe(64);
  the_monitor().unsubscribe(1 << 30);
  const Listener listener;
  the_monitor().invalidate(0x1000, 1);
  EXPECT_EQ(listener.count(), 1u);
}

TEST(MonitorClients, UnmappedMemoryIsReportedApartOnRequest) {
  Listener asks;
  const Listener other;
  ASSERT_EQ(asks.listen_to_unmapped(), 0);
  the_monitor().invalidate(0x10000, kPage);
  the_monitor().replaced(0x20000, kPage);
  EXPECT_EQ(asks.count(), 2u);
  EXPECT_EQ(other.count(), 2u);
  EXPECT_FALSE(asks.told_of_unmapped(0x10000, kPage));
  EXPECT_TRUE(asks.told_of_unmapped(0x20000, kPage));
  EXPECT_FALSE(other.told_of_unmapped(0x20000, kPage));
  asks.leave();
  EXPECT_NE(asks.listen_to_unmapped(), 0) << "it has no number";
  EXPECT_NE(the_monitor().set_unmapped(63, [](void*, uintptr_t, size_t) {}), 0);
}

// ---- what may be cached ----

class MonitorCover : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    ASSERT_EQ(the_monitor().start(), 0) << the_monitor().reason();
    memory_.replace(0, 16);
    std::memset(memory_.page(), 7, memory_.bytes());
    settle();  // of what an earlier test had in the same place
    listener_.clear();
  }
  // Returns when all earlier releases have been reported.
  static void settle() { the_monitor().settle(); }

  MappedMemory memory_{16};
  Listener listener_;
};

TEST_F(MonitorCover, PrivateAnonymousMemoryIsCheckedWithoutHooks) {
  EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  EXPECT_EQ(cover(memory_, 3, 2), HYDRANT_COVER_CHECKED);
  EXPECT_EQ(cover(memory_, 3, 2, HYDRANT_COVER_ONLY_ARENAS), HYDRANT_COVER_NONE);
  EXPECT_TRUE(has_reader());
  EXPECT_STREQ(the_monitor().reason(), "");
  EXPECT_EQ(the_monitor().start(), 0) << "again";
}

// Callers of munmap() sleep until it has read.
TEST_F(MonitorCover, ReaderTakesShortTimeSlices) {
  ASSERT_NE(cover(memory_, 0, 4), HYDRANT_COVER_NONE);
  if (time_slice_ns() == 0) GTEST_SKIP() << "this kernel has no slices of threads (Linux 6.12 has)";
  EXPECT_LE(time_slice_ns(find_reader()), 100'000u);
}

TEST_F(MonitorCover, SeveralMappingsSideBySideAreCovered) {
  ASSERT_EQ(mprotect(memory_.page(4), 4 * kPage, PROT_READ), 0);
  ASSERT_EQ(mprotect(memory_.page(10), kPage, PROT_NONE), 0);
  EXPECT_EQ(cover(memory_, 2, 12), HYDRANT_COVER_CHECKED);
  memory_.unmap(5, 1);
  settle();
  EXPECT_TRUE(listener_.told_of(memory_, 5, 1));
  EXPECT_EQ(cover(memory_, 2, 12), HYDRANT_COVER_NONE) << "there is a hole now";
  EXPECT_EQ(cover(memory_, 6, 8), HYDRANT_COVER_CHECKED);
}

TEST_F(MonitorCover, FilesAndSharedMemoryAreNot) {
  const MemoryFile file(4);
  memory_.replace_by_file(0, 2, file.fd(), MAP_SHARED);
  memory_.replace_by_file(4, 2, file.fd(), MAP_PRIVATE);
  memory_.replace_by_file(8, 2, -1, MAP_SHARED | MAP_ANONYMOUS);
  for (const size_t page : {0u, 4u, 8u}) {
    EXPECT_EQ(cover(memory_, page, 2), HYDRANT_COVER_NONE) << "page " << page;
    EXPECT_EQ(cover(memory_, page, 3), HYDRANT_COVER_NONE) << "reaches into it, page " << page;
    EXPECT_EQ(cover(memory_, page + 2, 2), HYDRANT_COVER_CHECKED) << "beside it, page " << page;
  }
}

TEST_F(MonitorCover, HugePagesOfAPoolAreNot) {
  constexpr size_t kHuge = size_t{2} << 20;
  void* huge = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (huge == MAP_FAILED) GTEST_SKIP() << "no huge pages from a pool: " << strerror(errno);
  EXPECT_EQ(the_monitor().cover(reinterpret_cast<uintptr_t>(huge), kHuge, 0), HYDRANT_COVER_NONE);
  munmap(huge, kHuge);
}

TEST_F(MonitorCover, UnmappedRangesAreNotCovered) {
  memory_.unmap(4, 4);
  settle();
  EXPECT_EQ(cover(memory_, 4, 4), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover(memory_, 2, 8), HYDRANT_COVER_NONE);
  EXPECT_EQ(the_monitor().cover(memory_.addr(), 0, 0), HYDRANT_COVER_NONE);
  EXPECT_EQ(the_monitor().cover(UINTPTR_MAX - kPage, 2 * kPage, 0), HYDRANT_COVER_NONE);
  EXPECT_EQ(the_monitor().cover(memory_.addr(), size_t{1} << 47, 0), HYDRANT_COVER_NONE);
  EXPECT_EQ(the_monitor().cover(uintptr_t{1} << 47, kPage, 0), HYDRANT_COVER_NONE);
  EXPECT_EQ(the_monitor().cover(0, kPage, 0), HYDRANT_COVER_NONE);
}

TEST_F(MonitorCover, MemoryWatchedByOthersIsNotCovered) {
  Userfault second;
  const char* reason = "";
  ASSERT_EQ(second.open(&reason), 0) << reason;
  ASSERT_TRUE(second.watch({memory_.addr(4), 4 * kPage}));
  EXPECT_EQ(cover(memory_, 4, 4), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover(memory_, 0, 4), HYDRANT_COVER_CHECKED);
  second.close();
  EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
}

TEST_F(MonitorCover, ReleasesAreReportedBeforeSettleReturns) {
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  memory_.unmap(2, 2);
  settle();
  EXPECT_TRUE(listener_.told_of(memory_, 2, 2));
  EXPECT_FALSE(listener_.told_of(memory_, 0, 2));
  EXPECT_FALSE(listener_.told_of(memory_, 4, 12));
  memory_.replace(6, 1);
  settle();
  EXPECT_TRUE(listener_.told_of(memory_, 6, 1));
  ASSERT_EQ(madvise(memory_.page(8), kPage, MADV_DONTNEED), 0);
  settle();
  EXPECT_TRUE(listener_.told_of(memory_, 8, 1));
  EXPECT_FALSE(listener_.told_of(memory_, 9, 7));
}

TEST_F(MonitorCover, UnmappedAndEmptiedMemoryAreDistinguished) {
  MappedMemory elsewhere(1);
  ASSERT_EQ(listener_.listen_to_unmapped(), 0);
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  memory_.unmap(0, 1);
  memory_.replace(2, 1);
  ASSERT_EQ(mremap(memory_.page(4), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.page()),
            elsewhere.page());
  memory_.disown(4, 1);
  ASSERT_EQ(madvise(memory_.page(6), kPage, MADV_DONTNEED), 0);
  settle();
  for (const size_t page : {0u, 2u, 4u, 6u}) {
    EXPECT_TRUE(listener_.told_of(memory_, page, 1)) << "page " << page;
    EXPECT_EQ(listener_.told_of_unmapped(memory_, page, 1), page != 6) << "page " << page;
  }
  EXPECT_TRUE(listener_.told_of(elsewhere, 0, 1));
  EXPECT_FALSE(listener_.told_of_unmapped(elsewhere, 0, 1));
}

TEST_F(MonitorCover, MovedMemoryIsReportedAtBothPlacesAndCoveredAgain) {
  MappedMemory elsewhere(4);
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  ASSERT_EQ(mremap(memory_.page(4), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                   elsewhere.page()),
            elsewhere.page());
  memory_.disown(4, 4);
  settle();
  EXPECT_TRUE(listener_.told_of(memory_, 4, 4));
  EXPECT_TRUE(listener_.told_of(elsewhere, 0, 4));
  EXPECT_EQ(cover(memory_, 4, 4), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover(elsewhere, 0, 4), HYDRANT_COVER_CHECKED);
  listener_.clear();
  elsewhere.unmap(1, 1);
  settle();
  EXPECT_TRUE(listener_.told_of(elsewhere, 1, 1));
}

TEST_F(MonitorCover, NewMemoryAtAnOldAddressIsWatched) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
    listener_.clear();
    memory_.unmap(0, 16);
    settle();
    ASSERT_TRUE(listener_.told_of(memory_, 0, 16));
    ASSERT_TRUE(memory_.map(0, 16));
  }
}

// The kernel does not report a segment that is attached over memory; the thread that attached it does.
TEST_F(MonitorCover, UnreportedReplacementIsQueriedAgain) {
  const int id = shmget(IPC_PRIVATE, 2 * kPage, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory: " << std::strerror(errno);
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  settle();
  listener_.clear();
  void* p = shmat(id, memory_.page(4), SHM_REMAP);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_EQ(p, memory_.page(4));
  the_monitor().replaced(memory_.addr(4), 2 * kPage);
  EXPECT_TRUE(listener_.told_of(memory_, 4, 2));
  EXPECT_FALSE(listener_.told_of(memory_, 0, 4));
  EXPECT_FALSE(listener_.told_of(memory_, 6, 10));
  EXPECT_EQ(cover(memory_, 4, 2), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover(memory_, 0, 4), HYDRANT_COVER_CHECKED);
  EXPECT_EQ(cover(memory_, 6, 10), HYDRANT_COVER_CHECKED);
  memory_.replace(4, 2);
  EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
}

TEST_F(MonitorCover, RemovedMemoryStaysUncoveredUntilItIsUnmapped) {
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  const uint64_t before = shown(the_monitor().removals);
  for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
    const size_t page = advice == MADV_FREE ? 10 : 4;
    ASSERT_EQ(madvise(memory_.page(page), 2 * kPage, advice), 0);
    settle();
    EXPECT_EQ(cover(memory_, page + 1, 1), HYDRANT_COVER_NONE);
    EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_NONE);
    std::memset(memory_.page(page), 1, 2 * kPage);
    EXPECT_EQ(cover(memory_, page + 1, 1), HYDRANT_COVER_NONE) << "used again is no proof";
    EXPECT_EQ(cover(memory_, page + 2, 2), HYDRANT_COVER_CHECKED);
  }
  EXPECT_GE(shown(the_monitor().removals), before + 2);
  memory_.replace(4, 2);
  memory_.unmap(10, 2);
  ASSERT_TRUE(memory_.map(10, 2));
  settle();
  EXPECT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
}

TEST_F(MonitorCover, QuietWithoutReleasesInFlight) {
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  EXPECT_TRUE(wait_until([] { return the_monitor().quiet(0) == 0; }));
  memory_.unmap(0, 4);
  EXPECT_TRUE(wait_until([] { return the_monitor().quiet(1'000'000) == 0; }));
  EXPECT_TRUE(listener_.told_of(memory_, 0, 4)) << "quiet includes the notification";
}

// A slow client delays the other clients, and the monitor does not report quiet() meanwhile.
TEST_F(MonitorCover, NotQuietWhileAClientIsStillForgetting) {
  ASSERT_EQ(cover(memory_, 0, 16), HYDRANT_COVER_CHECKED);
  listener_.hold_back(true);
  memory_.unmap(0, 4);
  EXPECT_NE(the_monitor().quiet(1'000'000), 0);
  EXPECT_EQ(shown(the_monitor().sequence) % 2, 1u);
  std::atomic<bool> settled{false};
  Threads threads;
  threads.start([&] {
    while (the_monitor().quiet(1'000'000'000) != 0) {
    }
    settled = true;
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(settled);
    sched_yield();
  }
  listener_.hold_back(false);
  threads.join();
  EXPECT_TRUE(listener_.told_of(memory_, 0, 4));
  EXPECT_TRUE(wait_until([] { return the_monitor().quiet(0) == 0; }));
}

// ---- blocks ----

TEST_F(MonitorCover, PinnedBlocksAreMarkedPermanently) {
  const uint64_t* blocks = the_monitor().blocks;
  ASSERT_NE(blocks, nullptr);
  const auto is_marked = [&](uintptr_t addr) {
    const uintptr_t block = addr >> HYDRANT_MONITOR_BLOCK_SHIFT;
    return (__atomic_load_n(&blocks[block / 64], __ATOMIC_ACQUIRE) >> block % 64 & 1) != 0;
  };
  // Outside all mappings of this process, so that no other code marks it.
  constexpr uintptr_t kBlock = uintptr_t{1} << HYDRANT_MONITOR_BLOCK_SHIFT;
  constexpr uintptr_t kFar = uintptr_t{1} << 40;
  ASSERT_FALSE(is_marked(kFar));
  the_monitor().note_pinned(kFar + kBlock - 1, 2);
  EXPECT_TRUE(is_marked(kFar));
  EXPECT_TRUE(is_marked(kFar + kBlock));
  EXPECT_FALSE(is_marked(kFar - 1));
  EXPECT_FALSE(is_marked(kFar + 2 * kBlock));
  the_monitor().note_pinned(kFar + 62 * kBlock, 4 * kBlock);
  for (uintptr_t i = 62; i < 66; ++i) EXPECT_TRUE(is_marked(kFar + i * kBlock)) << i;
  EXPECT_FALSE(is_marked(kFar + 66 * kBlock));
  constexpr uintptr_t kEnd = uintptr_t{1} << 47;
  the_monitor().note_pinned(kEnd - 1, kBlock);
  EXPECT_TRUE(is_marked(kEnd - 1));
  the_monitor().note_pinned(kEnd, kPage);
  the_monitor().note_pinned(UINTPTR_MAX - kPage, kPage);
  the_monitor().invalidate(kFar, 100 * kBlock);
  EXPECT_TRUE(is_marked(kFar));
}

// ---- machines that refuse ----

TEST(MonitorRefused, WithoutTheSystemCallNothingIsCoveredForAReason) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              const std::string wrong = refuse_system_call(SYS_userfaultfd, EPERM);
              if (!wrong.empty()) return wrong;
              MappedMemory memory(4);
              memory.replace(0, 4);
              if (cover(memory, 0, 4) != HYDRANT_COVER_NONE) return "covered";
              if (the_monitor().start() == 0) return "started";
              const std::string reason = the_monitor().reason();
              if (reason.find("not permitted") == std::string::npos) return "reason: " + reason;
              the_monitor().settle();
              the_monitor().sync();
              if (the_monitor().quiet(0) != 0) return "not quiet";
              if (has_reader()) return "a reader runs";
              if (the_monitor().add_arena(memory.addr(), memory.bytes()) != 0) return "no arena";
              const bool arena = cover(memory, 0, 4) == HYDRANT_COVER_ARENA;
              the_monitor().drop_arena(memory.addr(), memory.bytes());
              return arena ? "" : "arenas need no kernel";
            }),
            "");
}

// `left`: how many descriptors may still be opened.
std::string start_with_descriptors(int left) {
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  const rlimit few{static_cast<rlim_t>(lowest + left), static_cast<rlim_t>(lowest + left)};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return "no limit";
  set_log_level(LogLevel::kInfo);
  if (the_monitor().start() == 0 || the_monitor().start() == 0) return "started";
  const std::string reason = the_monitor().reason();
  return reason.find("raise ulimit -n") != std::string::npos ? "" : "reason: " + reason;
}

TEST(MonitorRefused, WithoutDescriptorsTheCauseAndTheRemedyAreLoggedOnce) {
  for (const int left : {0, 1}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(run_in_child([left] { return start_with_descriptors(left); }), "");
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.rfind("hydrant: info: memory cannot be watched", 0), 0u) << said;
    EXPECT_NE(said.find(left == 0 ? "for a userfaultfd: raise ulimit -n"
                                  : "for /proc/self/maps: raise ulimit -n"),
              std::string::npos)
        << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

}  // namespace
}  // namespace hydrant::testing
