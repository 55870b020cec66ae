// Memory that is released by system calls that the hooks do not see: free hits end before the caller
// continues, and libc's own calls are not mistaken for such calls. Free hits end for the whole process: each
// test is to run in a process of its own, as ctest does.
#include <hydrant/pin_cache.h>

#include "firehose/base/thread.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace hydrant::testing {
namespace {

constexpr unsigned kSlowReaderUs = 300'000;
// With a defect the reader must not wake before the test has checked; the test then ends the delay.
constexpr unsigned kAsleepTimes = 400;

class RawCalls : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (IsSkipped()) return;
    create(watching());
    use(kFirst);  // the watch runs
    if (hits_are_checked()) GTEST_SKIP() << "an earlier test of this process has ended free hits";
  }
  void TearDown() override {
#if HYDRANT_MUTANTS
    set_mutant(Mutant::kNone, 0);
#endif
    if (domain_ != 0) the_monitor().settle();
    WatchedPinCache::TearDown();
  }

  bool hits_are_checked() const { return stats_of(domain_).hits_are_checked != 0; }
  void replace_raw(size_t page) {
    ASSERT_EQ(syscall(SYS_mmap, arena_.page(page), kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              static_cast<long>(arena_.addr(page)))
        << std::strerror(errno);
  }
  // Whether a hit on the cached page queries the kernel.
  bool is_checked(size_t page) {
    use(page);
    const hydrant_stats_t before = stats_of(domain_);
    use(page);
    const hydrant_stats_t after = stats_of(domain_);
    EXPECT_EQ(after.hits + after.refills, before.hits + before.refills + 1);
    return after.checked_hits != before.checked_hits;
  }

  static constexpr size_t kFirst = 500, kA = 0, kB = 16, kC = 32;
};

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

// Memory of every kind that libc maps and unmaps by itself, pinned while it is mapped.
class LibcsOwnCalls : public RawCalls {
 protected:
  void SetUp() override {
    RawCalls::SetUp();
    if (IsSkipped()) return;
    // A registrar that accepts every pin.
    hydrant_registrar_t registrar{};
    registrar.size = sizeof registrar;
    registrar.name = "anything";
    registrar.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return int{GASNET_OK}; };
    registrar.unpin = [](void*, uintptr_t, size_t, const void*) { return int{HYDRANT_UNPIN_DONE}; };
    hydrant_domain_options_t options = watching();
    options.registrar = &registrar;
    ASSERT_EQ(hydrant_domain_create(&options, &anywhere_), GASNET_OK) << hydrant_error_text();
  }
  void TearDown() override {
    if (anywhere_ != 0) hydrant_domain_destroy(anywhere_, HYDRANT_FINI_UNPIN);
    RawCalls::TearDown();
  }
  void use_memory(char* memory, size_t len) {
    for (size_t at = 0; at < len; at += 16 * kPage) {
      const hydrant_pin_t pin = hydrant_pin(anywhere_, memory + at, 64, HYDRANT_LOCAL_WRITE);
      if (pin.region == nullptr) continue;
      EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    }
  }
  void use_page(size_t page) { use_memory(reinterpret_cast<char*>(arena_.page(page)), kPage); }
  // Threads that live at the same time, on stacks of libc's of this size each, and have ended.
  template <typename Visit>
  void run_on_stacks(size_t bytes, size_t count, Visit&& visit) {
    constexpr size_t kMax = 8;
    struct Job {
      std::remove_reference_t<Visit>* visit;
      pthread_barrier_t* together;
    };
    pthread_barrier_t together;
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_barrier_init(&together, nullptr, static_cast<unsigned>(count)), 0);
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
    Job job{&visit, &together};
    pthread_t threads[kMax];
    const auto run = [](void* argument) -> void* {
      const Job* own = static_cast<Job*>(argument);
      alignas(kPage) char on_stack[kPage];
      std::memset(on_stack, 1, sizeof on_stack);
      (*own->visit)(on_stack);
      pthread_barrier_wait(own->together);
      return nullptr;
    };
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(pthread_create(&threads[i], &attributes, run, &job), 0);
    }
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(pthread_join(threads[i], nullptr), 0);
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&together);
  }
  void expect_still_free() {
    const hydrant_stats_t stats = stats_of(anywhere_);
    EXPECT_EQ(stats.hits_are_checked, 0u);
    EXPECT_EQ(stats.raw_releases, 0u);
    const uint64_t hits = stats.hits + stats.refills;
    EXPECT_GT(hits, 0u);
    EXPECT_LE(stats.checked_hits * 100, hits);
    std::printf("%llu hits, %llu of them checked\n", static_cast<unsigned long long>(hits),
                static_cast<unsigned long long>(stats.checked_hits));
  }
  void allocate_much() {
    for (int round = 0; round < 30; ++round) {
      char* blocks[8];
      for (size_t i = 0; i < 8; ++i) {
        const size_t len = size_t{3000} << i;
        blocks[i] = static_cast<char*>(i % 2 == 0 ? malloc(len)
                                                  : aligned_alloc(4096, len / 4096 * 4096 + 4096));
        ASSERT_NE(blocks[i], nullptr);
        for (int again = 0; again < 20; ++again) use_memory(blocks[i], len);
      }
      for (size_t i = 0; i < 8; ++i) {
        const size_t len = size_t{5000} << i;
        auto* moved = static_cast<char*>(realloc(blocks[i], len));
        ASSERT_NE(moved, nullptr);
        use_memory(moved, len);
        free(moved);
      }
      if (round % 5 == 0) malloc_trim(0);
    }
  }

  hydrant_domain_t anywhere_ = 0;
};

TEST_F(LibcsOwnCalls, MallocInThreadsStaysFree) {
  mallopt(M_TRIM_THRESHOLD, 64 << 10);
  Threads threads;
  for (int i = 0; i < 4; ++i) threads.start([this] { allocate_much(); });
  allocate_much();
  threads.join();
  expect_still_free();
}

// More stacks than libc keeps: some are unmapped by the joining thread.
TEST_F(LibcsOwnCalls, StacksThatEndStayFree) {
  for (int round = 0; round < 8; ++round) {
    Threads threads;
    for (int i = 0; i < 12; ++i) {
      threads.start([this] {
        char buffer[3 * kPage];
        std::memset(buffer, 1, sizeof buffer);
        for (int again = 0; again < 20; ++again) use_memory(buffer, sizeof buffer);
      });
    }
    threads.join();
  }
  expect_still_free();
}

// Memory of the program that is adjacent to tables of another domain, with equal properties: the kernel must
// not merge both into one mapping, or the end of that domain would be a raw release.
TEST_F(LibcsOwnCalls, EndOfADomainStaysFree) {
  constexpr size_t kBytes = 256 << 10;
  for (int round = 0; round < 10; ++round) {
    const hydrant_domain_options_t options = watching();
    hydrant_domain_t other = 0;
    ASSERT_EQ(hydrant_domain_create(&options, &other), GASNET_OK) << hydrant_error_text();
    for (int i = 0; i < 8; ++i) {
      void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      for (int again = 0; again < 20; ++again) use_memory(static_cast<char*>(memory), kBytes);
    }
    ASSERT_EQ(hydrant_domain_destroy(other, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
  expect_still_free();
}

// libc keeps some 40 MiB of stacks for later threads, and unmaps the rest inside pthread_join(). A page of
// such a stack, pinned after its thread has ended, stands for memory of the program in the same mapping.
TEST_F(LibcsOwnCalls, StacksThatLibcKeepsStayFree) {
  constexpr size_t kLarge = size_t{12} << 20;
  constexpr size_t kSmall = size_t{64} << 10;
  for (int round = 0; round < 4; ++round) {
    const char* of_ended = nullptr;
    run_on_stacks(kLarge, 1, [&of_ended](char* on_stack) { of_ended = on_stack; });
    run_on_stacks(kSmall, 4, [](char*) {});  // takes the record of the ended thread
    for (int again = 0; again < 20; ++again) use_memory(const_cast<char*>(of_ended), kPage);
    run_on_stacks(kLarge, 6, [](char*) {});
  }
  expect_still_free();
}

// A stack that the program has mapped is the program's memory, also for raw calls.
TEST_F(LibcsOwnCalls, ProgramsStackIsNotLibcs) {
  constexpr size_t kBytes = 256 << 10;
  void* stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kBytes), 0);
  pthread_t thread;
  std::atomic<pid_t> tid{0};
  const auto run = [](void* own_tid) -> void* {
    *static_cast<std::atomic<pid_t>*>(own_tid) = static_cast<pid_t>(syscall(SYS_gettid));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &tid), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  // Until the kernel has removed the thread, it may count as the caller that releases memory.
  ASSERT_TRUE(wait_until([&tid] { return syscall(SYS_tgkill, getpid(), tid.load(), 0) != 0; }));
  pthread_attr_destroy(&attributes);
  use_memory(static_cast<char*>(stack), kBytes);
  ASSERT_EQ(syscall(SYS_munmap, stack, kBytes), 0);
  EXPECT_TRUE(wait_until([this] { return stats_of(anywhere_).raw_releases == 1; }));
}

TEST_F(LibcsOwnCalls, ProgramsStartedStayFree) {
  for (int round = 0; round < 10; ++round) {
    for (int again = 0; again < 4; ++again) use_page(kA);
    char name[] = "/bin/true";
    char* arguments[] = {name, nullptr};
    pid_t child = -1;
    ASSERT_EQ(posix_spawn(&child, name, nullptr, nullptr, arguments, environ), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_EQ(std::system("true"), 0);
    renew(kA);
  }
  expect_still_free();
}

// Replaces the page and, by munmap(), another one with other memory at once: another thread's mapping might
// be placed in a hole.
void replace(std::byte* page) {
  const int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  mmap(page, kPage, PROT_NONE, fixed, -1, 0);
  mmap(page, kPage, PROT_READ | PROT_WRITE, fixed, -1, 0);
  void* other = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (other != MAP_FAILED) munmap(other, kPage);
}

// A handler's calls are nested in others, at any point of them. (Other threads pin.)
TEST_F(LibcsOwnCalls, HandlersThatReleaseStayFree) {
  static std::byte* page = nullptr;
  page = arena_.page(kB);
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int saved = errno;
    replace(page);
    errno = saved;
  };
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const pthread_t victim = pthread_self();
  std::atomic<bool> stop{false};
  Threads threads;
  threads.start([&] {
    while (!stop) {
      use_page(kB);
      use_page(kC);
      use_page(kC);
      pthread_kill(victim, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  // Runs until the share of checked hits is significant, too.
  const auto hits = [&] {
    const hydrant_stats_t stats = stats_of(anywhere_);
    return stats.hits + stats.refills;
  };
  const uint64_t deadline = now_ns() + patient_ns(60'000'000'000);
  for (int round = 0; round < 3000 || (hits() < 1000 && now_ns() < deadline); ++round) {
    replace(arena_.page(kC));
    free(malloc(200 << 10));
  }
  stop = true;
  threads.join();
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
  ASSERT_TRUE(becomes_quiet());
  for (int i = 0; i < 4; ++i) use_page(kA);
  expect_still_free();
}

#if HYDRANT_MUTANTS

// A calling thread that no check finds asleep, such as one that is woken by another thread's change.
class CallerSearch : public LibcsOwnCalls {
 protected:
  void TearDown() override {
    set_blind_looks(0);
    LibcsOwnCalls::TearDown();
  }
};

TEST_F(CallerSearch, FruitlessSearchIsRepeated) {
  for (unsigned blind = 1; blind < 4; ++blind) {
    for (int again = 0; again < 8; ++again) use_page(kA);
    set_blind_looks(blind);
    renew(kA);
    ASSERT_TRUE(becomes_quiet());
    set_blind_looks(0);
  }
  for (int again = 0; again < 8; ++again) use_page(kA);
  expect_still_free();
}

TEST_F(CallerSearch, WithoutAnySuccessTheChangeCountsAsRaw) {
  use_page(kA);
  set_blind_looks(1000);
  renew(kA);
  ASSERT_TRUE(becomes_quiet());
  const hydrant_stats_t stats = stats_of(anywhere_);
  EXPECT_EQ(stats.hits_are_checked, 1u);
  EXPECT_EQ(stats.raw_releases, 1u);
}

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
