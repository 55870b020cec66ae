// Watching under load: threads that map and unmap what is cached, forks in the middle of it, children that
// watch for themselves. Each ends in bounded time or the test ends itself.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <random>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// The address sanitizer's allocator is copied with its locks: beside threads that allocate, about one child
// in forty hangs in its first malloc(), whichever thread holds the lock.
constexpr bool kHeapInChildren = false;
#else
constexpr bool kHeapInChildren = true;
#endif

// A registrar without a lock or a book, since a child could find any lock taken.
hydrant_registrar_t plain_registrar() {
  hydrant_registrar_t table{};
  table.size = sizeof table;
  table.name = "plain";
  table.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
  table.unpin = [](void*, uintptr_t, size_t, const void*) { return HYDRANT_UNPIN_DONE; };
  return table;
}

hydrant_domain_t plain_domain(const hydrant_registrar_t& table) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &table;
  options.watch = HYDRANT_WATCH_AUTO;
  options.budget_bytes = 64 * kMiB;
  options.max_regions = 4096;
  hydrant_domain_t domain = 0;
  EXPECT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
  return domain;
}

// ---- no mapping is served by the registration of an earlier one while threads map and unmap ----

class PinCacheWatchStress : public WatchedPinCache {
 protected:
  // Replaces four pages without leaving a hole, which another thread might map.
  void renew_in_place(size_t page, uint64_t how) {
    constexpr int kDontUnmap = 4;  // MREMAP_DONTUNMAP, since Linux 5.7
    constexpr size_t kBytes = 4 * kPage;
    if (how == 0) {
      (void)mmap(arena_.page(page), kBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    } else if (how == 1) {
      (void)madvise(arena_.page(page), kBytes, MADV_DONTNEED);
    } else {
      (void)mremap(arena_.page(page), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap,
                   arena_.page(page + 8));
    }
  }
};

TEST_F(PinCacheWatchStress, EveryMappingGetsItsOwnRegistration) {
  create(watching());
  constexpr size_t kThreads = 32;
  constexpr int kLives = 60;
  std::atomic<int> stale{0}, failed{0};
  Threads threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.start([&, t] {
      const size_t page = t * 16;
      std::mt19937_64 random(t);
      for (int life = 0; life < kLives; ++life) {
        const uint64_t oldest = registrar_.next_serial();
        renew_in_place(page, random() % 3);
        for (int use = 0; use < 3; ++use) {
          const hydrant_pin_t held =
              hydrant_pin(domain_, arena_.page(page), 4 * kPage, HYDRANT_LOCAL_WRITE);
          if (held.region == nullptr) {
            ++failed;
            continue;
          }
          const uint64_t number = registrar_.serial_of(held.region->key);
          if (number < oldest) ++stale;
          if (hydrant_release(held) != GASNET_OK) ++failed;
        }
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.start([&] {
      for (int i = 0; i < 500; ++i) {
        (void)the_monitor().cover(arena_.addr(0), arena_.pages() * kPage, 0);
        (void)the_monitor().quiet(1'000'000);
        the_monitor().settle();
        (void)the_monitor().pinned(arena_.addr(0), kPage);
        (void)hydrant_poll(domain_);
      }
    });
  }
  threads.join();
  EXPECT_EQ(stale, 0);
  EXPECT_EQ(failed, 0);
}

// ---- children ----

class PinCacheWatchChild : public WatchedPinCache, public ::testing::WithParamInterface<ChildKind> {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
  }
  // "" if a new mapping of the page is registered anew, and its registration was cached before.
  std::string forgets(size_t page) {
    if (!becomes_quiet()) return "the reader does not read";
    const uint64_t first = use(page);
    if (use(page) != first) return "not kept: " + std::string(the_monitor().reason());
    renew(page);
    if (use(page) == first) return "an earlier life's registration was served";
    // The region is not cached, nor its memory watched, if the reader was slower than a pin waits.
    if (!becomes_quiet() || use(page) == 0) return "not pinned again";
    remove(page);
    if (coverage(page) != HYDRANT_COVERAGE_NONE) return "removed memory is kept";
    return registrar_.problems();
  }
};

TEST_P(PinCacheWatchChild, WatchesForItselfAndTheParentIsUnaffected) {
  create(watching());
  const uint64_t parents = use(4);
  EXPECT_EQ(run_in_child(
                [&]() -> std::string {
                  registrar_.forget_all();
                  if (try_pin(4).region != nullptr) return "hit what the parent had kept";
                  std::string wrong = forgets(4);
                  return wrong.empty() ? forgets(8) : wrong;
                },
                GetParam()),
            "");
  EXPECT_EQ(use(4), parents) << "what a child unmaps is its own";
  EXPECT_EQ(forgets(4), "");
}

TEST_P(PinCacheWatchChild, GrandchildrenToo) {
  create(watching());
  use(4);
  EXPECT_EQ(run_in_child(
                [&]() -> std::string {
                  registrar_.forget_all();
                  use(4);
                  std::string wrong = run_in_child(
                      [&]() -> std::string {
                        registrar_.forget_all();
                        return forgets(4);
                      },
                      GetParam());
                  return wrong.empty() ? forgets(4) : wrong;
                },
                GetParam()),
            "");
}

TEST_P(PinCacheWatchChild, DescriptorOfTheParentIsNotHeldOpen) {
  create(watching());
  use(4);
  EXPECT_EQ(run_in_child(
                [&]() -> std::string {
                  registrar_.forget_all();
                  use(4);  // notices that it is a child
                  int watchers = 0;
                  for (int fd = 0; fd < 64; ++fd) {
                    char link[64] = {};
                    const std::string path = "/proc/self/fd/" + std::to_string(fd);
                    if (readlink(path.c_str(), link, sizeof link - 1) > 0 &&
                        std::strstr(link, "userfaultfd") != nullptr) {
                      ++watchers;
                    }
                  }
                  return watchers == 1 ? "" : std::to_string(watchers) + " userfaultfds";
                },
                GetParam()),
            "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, PinCacheWatchChild,
                         ::testing::Values(ChildKind::kFork, ChildKind::kRawClone),
                         [](const auto& kind) {
                           return kind.param == ChildKind::kFork ? "Fork" : "RawClone";
                         });

// ---- forks beside an allocator that gives memory back ----

// A thread in malloc() holds malloc's locks while the kernel waits for the reader; the reader takes a
// domain's mutex; fork() takes all of these.
class PinCacheWatchHeap : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    // Give back at once, and never by munmap of single blocks.
    mallopt(M_TRIM_THRESHOLD, 64 << 10);
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    domain_ = plain_domain(table_);
  }
  void TearDown() override {
    if (domain_ == 0) return;
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  }

  // Allocates, pins, releases and frees a block; false if it could not be pinned.
  bool use_heap(std::mt19937_64& random) const {
    const size_t bytes = 1 + random() % (size_t{512} << 10);
    void* block = std::malloc(bytes);
    if (block == nullptr) return false;
    std::memset(block, 1, bytes);
    const hydrant_pin_t held = hydrant_pin(domain_, block, bytes, HYDRANT_LOCAL_WRITE);
    const bool good = held.region != nullptr && hydrant_release(held) == GASNET_OK;
    std::free(block);
    if (random() % 16 == 0) malloc_trim(0);
    return good;
  }
  // Forks n times; each child uses the cache and ends. How many did not.
  int fork_often(int n) const {
    int bad = 0;
    for (int i = 0; i < n; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        std::mt19937_64 random(7);
        _exit(!kHeapInChildren || use_heap(random) ? 0 : 1);
      }
      int status = -1;
      const bool ended =
          pid > 0 && wait_until([&] { return waitpid(pid, &status, WNOHANG) == pid; });
      if (!ended && pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
      }
      if (!ended || status != 0) ++bad;
    }
    return bad;
  }

  const hydrant_registrar_t table_ = plain_registrar();
  hydrant_domain_t domain_ = 0;
};

TEST_F(PinCacheWatchHeap, ForksBesideThreadsThatAllocateFreeAndPin) {
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, bad{0};
  Threads threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.start([&, t] {
      std::mt19937_64 random(t);
      while (!stop) {
        if (!use_heap(random)) ++failed;
      }
    });
  }
  threads.start([&] {
    bad = fork_often(60);
    stop = true;
  });
  threads.join();
  EXPECT_EQ(bad, 0) << "children that did not end well";
  EXPECT_EQ(failed, 0);
}

TEST_F(PinCacheWatchHeap, ManyThreadsTrimWatchedMemory) {
  std::atomic<int> failed{0};
  Threads threads;
  for (uint64_t t = 0; t < 16; ++t) {
    threads.start([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 60; ++i) {
        if (!use_heap(random)) ++failed;
      }
    });
  }
  threads.join();
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace hydrant::testing
