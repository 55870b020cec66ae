// Memory that is released by system calls that the hooks do not see: free hits end before the caller
// continues.
#include "tests/unit/firehose/watch/hooked/raw_calls.hpp"

#include <hydrant/pin_cache.h>

#include "firehose/watch/mutant.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

TEST_F(RawCalls, ReplacedMappingIsNotHit) {
  const uint64_t first = use(kA);
  ASSERT_EQ(use(kA), first);
  EXPECT_EQ(coverage(kA), HYDRANT_COVERAGE_WATCHED);
  replace_raw(kA);
  EXPECT_GT(use(kA), first);
  EXPECT_TRUE(hits_are_checked());
  EXPECT_EQ(stats_of(domain_).raw_releases, 1u);
  EXPECT_EQ(coverage(kA), HYDRANT_COVERAGE_CHECKED);
}

TEST_F(RawCalls, EmptiedMemoryIsNotHit) {
  const uint64_t first = use(kA);
  ASSERT_EQ(syscall(SYS_madvise, arena_.page(kA), kPage, MADV_DONTNEED), 0);
  EXPECT_GT(use(kA), first);
  EXPECT_TRUE(hits_are_checked());
  // No hook reports when the caller of such a call has returned.
  EXPECT_EQ(coverage(kA), HYDRANT_COVERAGE_NONE);
}

int unmap_in_child(void* page) {
  syscall(SYS_munmap, page, kPage);
  syscall(SYS_exit, 0);
  return 0;
}

TEST_F(RawCalls, ChildThatSharesMemoryIsDetected) {
  const uint64_t first = use(kA);
  alignas(64) static char stack[16 << 10];
  const int child = clone(unmap_in_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD,
                          arena_.page(kA));
  ASSERT_GT(child, 0) << std::strerror(errno);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  map(kA);
  EXPECT_GT(use(kA), first);
  EXPECT_TRUE(hits_are_checked());
}

// It stays cached, and hits on it are checked from now on.
TEST_F(RawCalls, FreeHitsOfOtherMemoryEnd) {
  const uint64_t first = use(kA);
  EXPECT_FALSE(is_checked(kA));
  use(kB);
  replace_raw(kB);
  EXPECT_TRUE(is_checked(kA));
  EXPECT_EQ(use(kA), first);
}

TEST_F(RawCalls, MemoryThatTheClientVouchesForStaysFree) {
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(kA), kPage), GASNET_OK);
  const uint64_t first = use(kA);
  use(kB);
  replace_raw(kB);
  EXPECT_FALSE(is_checked(kA));
  EXPECT_EQ(use(kA), first);
}

TEST_F(RawCalls, RegistrationInFlightIsOpenedForCheckedHits) {
  use(kB);
  registrar_.stop_pins();
  Threads threads;
  threads.start([this] { use(kC); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  replace_raw(kB);
  registrar_.resume_pins();
  threads.join();
  EXPECT_TRUE(is_checked(kC));
}

// Threads that allocate are inside hooked calls all the time. Each of them has its heap before the raw call:
// while it makes one, it sleeps in the kernel, and could be the caller that the reader looks for.
TEST_F(RawCalls, AreDetectedBesideAllocatingThreads) {
  constexpr uint32_t kThreads = 3;
  constexpr uint32_t kFirstCalls = 1000;
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> with_heap{0};
  Threads threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.start([&] {
      for (uint32_t calls = 0; !stop; ++calls) {
        free(malloc(100));
        if (calls == kFirstCalls) ++with_heap;
      }
    });
  }
  ASSERT_TRUE(wait_until([&] { return with_heap == kThreads; }));
  const uint64_t first = use(kA);
  replace_raw(kA);
  EXPECT_GT(use(kA), first);
  EXPECT_TRUE(wait_until([this] { return hits_are_checked(); }));
  stop = true;
  threads.join();
}

// A client that delays the reader: the reader waits for its reply while memory is released.
class SlowAnswer {
 public:
  SlowAnswer() { number_ = the_monitor().subscribe(&client_); }
  ~SlowAnswer() {
    answer();
    the_monitor().unsubscribe(number_);
  }
  SlowAnswer(const SlowAnswer&) = delete;
  SlowAnswer& operator=(const SlowAnswer&) = delete;
  void ask() { may_wait_ = true; }
  void answer() { may_wait_ = false; }
  bool is_asked() const { return asked_; }

 private:
  static constexpr int kNaps = 3000;
  int wait() {
    asked_ = may_wait_.load();
    for (int naps = 0; may_wait_ && naps < kNaps; ++naps)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    may_wait_ = false;  // once
    return 1;
  }
  hydrant_monitor_client_t client_{
      this, [](void*, uintptr_t, size_t) {}, [](void*) {},
      [](void* self, uintptr_t, size_t) { return static_cast<SlowAnswer*>(self)->wait(); }};
  int number_ = -1;
  std::atomic<bool> may_wait_{false}, asked_{false};
};

// Memory that a raw call has released is free for all before the reader has read that.
TEST_F(RawCalls, MemoryThatAHookMapsMeanwhileIsNotHit) {
  destroy();
  SlowAnswer slow;  // subscribed first, so the reader calls it before the caches
  create(watching());
  hydrant_domain_t other = 0;
  const hydrant_domain_options_t options = watching();
  ASSERT_EQ(hydrant_domain_create(&options, &other), GASNET_OK);
  const uint64_t first = use(kA);
  ASSERT_EQ(coverage(kA), HYDRANT_COVERAGE_WATCHED);
  slow.ask();
  Threads threads;
  threads.start([other] { hydrant_domain_destroy(other, HYDRANT_FINI_UNPIN); });
  ASSERT_TRUE(wait_until([&slow] { return slow.is_asked(); }));
  threads.start([this] { syscall(SYS_munmap, arena_.page(kA), kPage); });
  unsigned char resident = 0;
  ASSERT_TRUE(wait_until([&] { return mincore(arena_.page(kA), kPage, &resident) != 0; }));
  map(kA);
  EXPECT_GT(use(kA), first);
  slow.answer();
  threads.join();
}

#if HYDRANT_MUTANTS

constexpr unsigned kSlowReaderUs = 300'000;
// With a defect the reader must not wake before the test has checked; the test then ends the delay.
constexpr unsigned kAsleepTimes = 400;

// Steps whose absence the tests above would not detect: each test omits a step by a mutant.
using RawCallsMutants = RawCalls;

TEST_F(RawCallsMutants, ReadFirst) {
  const uint64_t first = use(kA);
  set_mutant(Mutant::kReadFirst, kAsleepTimes * kSlowReaderUs);
  replace_raw(kA);
  const uint64_t second = use(kA);
  set_mutant(Mutant::kNone, 0);
  EXPECT_EQ(second, first) << "the caller continues before free hits have ended";
}

TEST_F(RawCallsMutants, ReadFirstIsTheDefectNotTheDelay) {
  const uint64_t first = use(kA);
  set_mutant(Mutant::kNone, kSlowReaderUs);
  replace_raw(kA);
  EXPECT_GT(use(kA), first);
}

TEST_F(RawCallsMutants, HitsStayFree) {
  use(kA);
  use(kB);
  set_mutant(Mutant::kKeepFreeHits, 0);
  replace_raw(kB);
  EXPECT_FALSE(is_checked(kA));
}

TEST_F(RawCallsMutants, OpenFree) {
  use(kB);
  registrar_.stop_pins();
  Threads threads;
  threads.start([this] { use(kC); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  set_mutant(Mutant::kOpenFree, 0);
  replace_raw(kB);
  registrar_.resume_pins();
  threads.join();
  // The thread's first use takes the slow path, which hides the defect: check the hit of the thread that has
  // the region in its table.
  const hydrant_stats_t before = stats_of(domain_);
  use(kC);
  EXPECT_EQ(stats_of(domain_).checked_hits, before.checked_hits);
}

#endif

}  // namespace
}  // namespace hydrant::testing
