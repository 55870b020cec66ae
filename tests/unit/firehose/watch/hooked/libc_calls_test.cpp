// Memory that libc maps and unmaps by itself, for its heaps, its threads' stacks and the programs that it
// starts: these calls are not mistaken for raw ones, and free hits go on.
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "firehose/base/thread.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/hooked/raw_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <random>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

extern char** environ;

namespace hydrant::testing {
namespace {

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
  void run_on_stacks(size_t bytes, size_t count, Visit&& visit, size_t guard = kPage) {
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
    ASSERT_EQ(pthread_attr_setguardsize(&attributes, guard), 0);
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
  void pin_on_stacks(int rounds) {
    for (int round = 0; round < rounds; ++round) {
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
  pin_on_stacks(8);
  expect_still_free();
}

// Stacks without guard pages, or with those of MADV_GUARD_INSTALL, are one mapping: when the first of them is
// pinned, the threads of others have not run yet.
TEST_F(LibcsOwnCalls, StacksInOneMappingStayFree) {
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t unguarded = before;
  ASSERT_EQ(pthread_attr_setguardsize(&unguarded, 0), 0);
  ASSERT_EQ(pthread_setattr_default_np(&unguarded), 0);
  pin_on_stacks(40);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&before);
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

// Threads of many kinds come and go, while stacks are pinned for the first time and others are unmapped.
TEST_F(LibcsOwnCalls, StacksOfManySizesStayFree) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  Threads starters;
  for (unsigned starter = 0; starter < 3; ++starter) {
    starters.start([this, starter, end] {
      std::mt19937 random(starter);
      while (std::chrono::steady_clock::now() < end) {
        const size_t bytes = (size_t{32} << 10 << random() % 12) + (size_t{16} << 10);
        run_on_stacks(
            bytes, 8, [this](char* on_stack) { use_memory(on_stack, kPage); },
            random() % 3 * kPage);
      }
    });
  }
  starters.join();
  expect_still_free();
}

// The stack is unwatched, so that its unmapping is not reported.
TEST_F(LibcsOwnCalls, ProgramsMemoryWhereStacksWereIsNotLibcs) {
  constexpr size_t kBytes = size_t{64} << 20;  // libc unmaps it when its thread is joined
  uintptr_t own_page = 0;
  const hydrant_monitor_t* monitor = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  run_on_stacks(kBytes, 1, [&](char* on_stack) {
    use_memory(on_stack, kPage);
    own_page = reinterpret_cast<uintptr_t>(pthread_self()) / kPage * kPage;
    ASSERT_EQ(hydrant_flush(anywhere_), GASNET_OK);
    const uintptr_t first = reinterpret_cast<uintptr_t>(on_stack);
    EXPECT_EQ(monitor->unwatch_range(first, own_page + kPage - first, 1'000'000'000), 0);
  });
  void* memory = mmap(reinterpret_cast<void*>(own_page), kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(memory, reinterpret_cast<void*>(own_page)) << "the stack is still mapped";
  use_memory(static_cast<char*>(memory), kPage);
  ASSERT_EQ(syscall(SYS_munmap, memory, kPage), 0);
  EXPECT_TRUE(wait_until([this] { return stats_of(anywhere_).raw_releases == 1; }));
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

#endif

}  // namespace
}  // namespace hydrant::testing
