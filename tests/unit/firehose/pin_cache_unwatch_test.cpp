// A domain stops watching its memory at its flush and at its end: the program can then register the memory
// with a userfaultfd of its own. Memory that another domain caches stays watched.
#include <hydrant/pin_cache.h>

#include "tests/support/own_userfault.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kCanUseUpMappings = false;
#else
constexpr bool kCanUseUpMappings = true;
#endif

// vm.max_map_count, or 0.
size_t max_mappings() {
  size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  return most;
}

// While it exists the process has as many mappings as it may.
class UsedUpMappings {
 public:
  explicit UsedUpMappings(size_t most)
      : bytes_(2 * most * kPage),
        split_(static_cast<std::byte*>(
            mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (split_ == MAP_FAILED) return;
    singles_.reserve(most);
    for (size_t i = 0; i < most && mprotect(split_ + (2 * i + 1) * kPage, kPage, PROT_READ) == 0;
         ++i) {
    }
    for (size_t i = 0; i < most; ++i) {
      void* single = mmap(nullptr, kPage, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (single == MAP_FAILED) break;
      singles_.push_back(single);
    }
    is_full_ = mmap(nullptr, kPage, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
  }
  ~UsedUpMappings() {
    for (void* single : singles_) munmap(single, kPage);
    if (split_ != MAP_FAILED) munmap(split_, bytes_);
  }
  UsedUpMappings(const UsedUpMappings&) = delete;
  UsedUpMappings& operator=(const UsedUpMappings&) = delete;
  bool is_full() const { return is_full_; }

 private:
  size_t bytes_;
  std::byte* split_;
  std::vector<void*> singles_;
  bool is_full_ = false;
};

class PinCacheUnwatch : public WatchedPinCache {
 protected:
  // Kept, and so watched.
  void keep(size_t page) {
    ASSERT_TRUE(becomes_quiet());
    const uint64_t first = use(page, 4);
    EXPECT_EQ(use(page, 4), first);
  }
  int own_watch(size_t page) const { return own_.watch(arena_.page(page), 4 * kPage); }

  OwnUserfault own_;
};

TEST_F(PinCacheUnwatch, FlushUnwatchesUnusedMemory) {
  create(watching());
  keep(4);
  EXPECT_EQ(own_watch(4), EBUSY);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(own_watch(4), 0);
  EXPECT_EQ(coverage(4, 4), HYDRANT_COVERAGE_NONE) << "another userfaultfd's memory is not kept";
}

TEST_F(PinCacheUnwatch, DomainEndUnwatchesItsMemory) {
  create(watching());
  keep(4);
  EXPECT_EQ(own_watch(4), EBUSY);
  destroy();
  EXPECT_EQ(own_watch(4), 0);
}

TEST_F(PinCacheUnwatch, EmptyCacheUnwatchesItsMemory) {
#if HYDRANT_MUTANTS
  Upkeep::set_delay_ns(1'000'000);
#endif
  create(watching());
  keep(4);
  keep(12);
  ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(4), 4 * kPage), GASNET_OK);
  EXPECT_EQ(own_watch(4), EBUSY) << "pages of a mapping in which others are cached";
  ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(12), 4 * kPage), GASNET_OK);
  EXPECT_TRUE(wait_until([&] { return own_watch(4) == 0; }));
}

// The kernel walks the page tables of memory that it unregisters, and no thread can map or unmap meanwhile.
TEST_F(PinCacheUnwatch, LargeMappingsAreUnwatchedOnRequestOnly) {
  create(watching());
  MappedMemory large((size_t{32} << 20) / kPage);
  large.replace(0, large.bytes() / kPage);
  ASSERT_TRUE(becomes_quiet());
  ASSERT_NE(the_monitor().cover(large.addr(), kPage, 0), HYDRANT_COVER_NONE);
  the_monitor().unwatch_idle();
  EXPECT_EQ(own_.watch(large.page(0), kPage), EBUSY);
  the_monitor().unwatch_unused();
  EXPECT_EQ(own_.watch(large.page(0), kPage), 0);
}

// The kernel ends registrations mapping by mapping, and fails where it has to split one and the process has
// as many as it may.
TEST_F(PinCacheUnwatch, PartiallyUnwatchedMemoryIsNotStale) {
  if (!kCanUseUpMappings) GTEST_SKIP() << "the thread sanitizer ends a process without mappings";
  const size_t most = max_mappings();
  constexpr size_t kMax = 200'000;
  if (most == 0 || most > kMax)
    GTEST_SKIP() << "vm.max_map_count is " << most << ": too many to use up";
  create(watching());
  keep(4);
  // Two mappings side by side, and a removal in the second, at which the range is cut.
  ASSERT_EQ(mprotect(arena_.page(8), 8 * kPage, PROT_READ), 0);
  ASSERT_EQ(mprotect(arena_.page(16), kPage, PROT_NONE), 0);
  ASSERT_TRUE(becomes_quiet());
  const uint64_t first = use(4, 4);
  (void)use(8, 8, HYDRANT_REMOTE_READ);
  {
    const UsedUpMappings used_up(most);
    ASSERT_TRUE(used_up.is_full());
    remove(12);
    ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  }
  ASSERT_TRUE(becomes_quiet());
  const uint64_t second = use(4, 4);
  EXPECT_NE(second, first);
  renew(4, 4);
  EXPECT_NE(use(4, 4), second);
}

// Runs without the hooks. The unmapping must be reported, or the next mapping at that address would count as
// removed.
TEST_F(PinCacheUnwatch, EmptiedMemoryStaysWatchedUntilItIsUnmapped) {
  create(watching());
  keep(4);
  remove(6);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(own_.watch(arena_.page(6), kPage), EBUSY);
  EXPECT_EQ(own_.watch(arena_.page(4), 2 * kPage), 0) << "what lies before it";
  EXPECT_EQ(own_.watch(arena_.page(7), 2 * kPage), 0) << "what lies behind it";
  renew(6);
  EXPECT_EQ(own_.watch(arena_.page(6), kPage), 0);
}

TEST_F(PinCacheUnwatch, ReusedMemoryIsWatchedAgain) {
  create(watching());
  keep(4);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  keep(4);
  EXPECT_EQ(own_watch(4), EBUSY);
  const uint64_t before = use(4, 4);
  renew(4, 4);
  EXPECT_NE(use(4, 4), before) << "its release was not reported";
}

class PinCacheUnwatchRefused : public PinCacheUnwatch {
 protected:
  void SetUp() override {
    PinCacheUnwatch::SetUp();
    create(watching());
    ASSERT_TRUE(becomes_quiet());
    registrar_.refuse(arena_.addr(4), 4 * kPage, RecordingRegistrar::kAnyAccess);
    EXPECT_EQ(pin(4, 4).region, nullptr);
    registrar_.refuse_nothing();
  }
};

TEST_F(PinCacheUnwatchRefused, RefusalEndsWithItsMemory) {
  the_monitor().unwatch_unused();
  the_monitor().unwatch_idle();
  EXPECT_EQ(own_watch(4), EBUSY);
  renew(4, 4);
  (void)use(4, 4);
}

TEST_F(PinCacheUnwatchRefused, FlushForgetsRefusals) {
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  renew(4, 4);
  (void)use(4, 4);
}

TEST_F(PinCacheUnwatchRefused, FlushUnwatchesRefusedMemory) {
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(own_watch(4), 0);
}

TEST_F(PinCacheUnwatch, HeldMemoryStaysWatched) {
  create(watching());
  const hydrant_pin_t held = pin(4, 4);
  ASSERT_NE(held.region, nullptr);
  const uint64_t number = serial(held);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(own_watch(4), EBUSY);
  renew(4, 4);
  EXPECT_NE(use(4, 4), number);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheUnwatch, MemoryOfAnotherDomainStaysWatched) {
  create(watching());
  keep(4);
  hydrant_domain_t other = 0;
  RecordingRegistrar registrar(arena_, 8);
  hydrant_domain_options_t options = options_for(registrar);
  options.watch = HYDRANT_WATCH_AUTO;
  ASSERT_EQ(hydrant_domain_create(&options, &other), GASNET_OK);
  const auto others = [&]() -> uint64_t {
    const hydrant_pin_t held = hydrant_pin(other, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE);
    if (held.region == nullptr) return 0;
    const uint64_t number = registrar.serial_of(held.region->key);
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    return number;
  };
  const uint64_t before = others();
  EXPECT_EQ(others(), before);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(own_watch(4), EBUSY);
  EXPECT_EQ(others(), before);
  renew(4, 4);
  EXPECT_NE(others(), before);
  EXPECT_EQ(hydrant_domain_destroy(other, HYDRANT_FINI_UNPIN), GASNET_OK);
  destroy();
  EXPECT_EQ(own_watch(4), 0);
}

TEST_F(PinCacheUnwatch, UnwatchedRangeIsForgottenAndItsNeighboursKept) {
  create(watching());
  keep(4);
  const uint64_t beside = use(12, 4);
  const auto unwatch = [&](size_t page) {
    return the_monitor().unwatch_range(arena_.addr(page), 4 * kPage, 0);
  };
  EXPECT_NE(unwatch(4), 0) << "what is forgotten is still registered";
  ASSERT_EQ(hydrant_poll(domain_), GASNET_OK);
  EXPECT_EQ(unwatch(4), 0);
  EXPECT_EQ(own_watch(4), 0);
  EXPECT_EQ(own_watch(12), EBUSY);
  EXPECT_EQ(use(12, 4), beside);
  EXPECT_EQ(unwatch(20), 0) << "nothing was pinned there";
  EXPECT_EQ(own_watch(20), 0);
}

TEST_F(PinCacheUnwatch, RangeWithHeldMemoryStaysWatched) {
  create(watching());
  const hydrant_pin_t held = pin(4, 4);
  ASSERT_NE(held.region, nullptr);
  EXPECT_NE(the_monitor().unwatch_range(arena_.addr(2), 4 * kPage, 1'000'000), 0);
  EXPECT_EQ(own_watch(4), EBUSY);
  renew(4, 4);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

// The state after a report that could not be entered.
TEST_F(PinCacheUnwatch, RegisteredMemoryThatTheSetHasLostIsUnwatched) {
  create(watching());
  keep(4);
  const uint64_t kept = use(300, 4);
  the_monitor().not_watched(arena_.addr(4), 4 * kPage);
  ASSERT_EQ(hydrant_poll(domain_), GASNET_OK);
  EXPECT_EQ(own_watch(4), EBUSY);
  EXPECT_EQ(the_monitor().unwatch_range(arena_.addr(4), 4 * kPage, 0), 0);
  EXPECT_EQ(own_watch(4), 0);
  EXPECT_EQ(use(300, 4), kept);
}

// The other's memory is neither registered nor unregistered.
TEST_F(PinCacheUnwatch, MemoryOfAnotherUserfaultStaysItsOwn) {
  create(watching());
  ASSERT_EQ(own_watch(4), 0);
  EXPECT_EQ(the_monitor().unwatch_range(arena_.addr(2), 8 * kPage, 1'000'000'000), 0);
  const OwnUserfault third;
  EXPECT_EQ(third.watch(arena_.page(4), 4 * kPage), EBUSY);
  EXPECT_EQ(third.watch(arena_.page(2), 2 * kPage), 0);
  EXPECT_EQ(third.watch(arena_.page(8), 2 * kPage), 0);
}

// Reports pages as pinned, one fewer every 2 ms: by the clock, so that no thread has to run for it.
class DrainingCache {
 public:
  static constexpr size_t kPages = 64;
  static constexpr uint64_t kPageNs = 2'000'000;
  explicit DrainingCache(uintptr_t addr) : addr_(addr) {
    number_ = the_monitor().subscribe(&client_);
  }
  ~DrainingCache() { the_monitor().unsubscribe(number_); }
  DrainingCache(const DrainingCache&) = delete;
  DrainingCache& operator=(const DrainingCache&) = delete;

 private:
  size_t left() const { return kPages - std::min<size_t>(kPages, (now_ns() - begun_) / kPageNs); }

  hydrant_monitor_client_t client_{this, [](void*, uintptr_t, size_t) {}, [](void*) {},
                                   [](void* self, uintptr_t addr, size_t) -> int {
                                     const auto& cache = *static_cast<DrainingCache*>(self);
                                     return addr < cache.addr_ + cache.left() * kPage;
                                   }};
  uintptr_t addr_;
  const uint64_t begun_ = now_ns();
  int number_ = -1;
};

TEST_F(PinCacheUnwatch, ProgressOfUnpinsExtendsTheWait) {
  constexpr uint64_t kTimeoutNs = 20'000'000;  // a fraction of what all unpins take
  create(watching());
  ASSERT_TRUE(becomes_quiet());
  constexpr size_t kBytes = DrainingCache::kPages * kPage;
  ASSERT_NE(the_monitor().cover(arena_.addr(0), kBytes, 0), HYDRANT_COVER_NONE);
  const DrainingCache cache(arena_.addr(0));
  EXPECT_EQ(the_monitor().unwatch_range(arena_.addr(0), kBytes, kTimeoutNs), 0);
  EXPECT_EQ(own_watch(4), 0);
}

// A domain repeatedly unwatches memory that others are about to cache.
TEST_F(PinCacheUnwatch, NothingIsStaleBesideUnwatchingThreads) {
  create(watching());
  constexpr size_t kThreads = 4;
  std::atomic<size_t> running{kThreads};
  std::atomic<int> stale{0}, failed{0};
  Threads threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.start([&, t] {
      const size_t page = t * 16;
      for (int life = 0; life < 300; ++life) {
        const uint64_t oldest = registrar_.next_serial();
        if (life % 2 == 0) {
          (void)mmap(arena_.page(page), 4 * kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        } else {
          (void)madvise(arena_.page(page), 4 * kPage, MADV_DONTNEED);
        }
        for (int i = 0; i < 3; ++i) {
          const hydrant_pin_t held =
              hydrant_pin(domain_, arena_.page(page), 4 * kPage, HYDRANT_LOCAL_WRITE);
          if (held.region == nullptr) {
            ++failed;
            continue;
          }
          if (serial(held) < oldest) ++stale;
          if (hydrant_release(held) != GASNET_OK) ++failed;
        }
      }
      --running;
    });
  }
  threads.start([&] {
    while (running != 0) {
      if (hydrant_flush(domain_) != GASNET_OK) ++failed;
    }
  });
  threads.join();
  EXPECT_EQ(stale, 0);
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace hydrant::testing
