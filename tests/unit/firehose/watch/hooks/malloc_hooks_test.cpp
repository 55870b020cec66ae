#include "tests/support/patience.hpp"
#include "tests/support/sizes.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <malloc.h>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kLarge = 40 * kMiB;  // always a mapping of its own

void* volatile sink;  // so that no allocation is optimised away

bool is_known_heap(const void* p) {
  const uintptr_t block = reinterpret_cast<uintptr_t>(p) >> HYDRANT_HOOKS_HEAP_SHIFT;
  return __atomic_load_n(&hooks()->heap_blocks[block / 64], __ATOMIC_ACQUIRE) >> block % 64 & 1;
}

// Word 5 of a heap's header, which libc does not use.
uint64_t* mark_of_heap(const void* p) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(p) >> HYDRANT_HOOKS_HEAP_SHIFT
                                                                << HYDRANT_HOOKS_HEAP_SHIFT;
  return reinterpret_cast<uint64_t*>(start) + 5;
}
bool is_marked(const void* p) { return !is_known_heap(p) && *mark_of_heap(p) != 0; }

class MallocHooks : public ::testing::Test {
 protected:
  static uint64_t syncs_of(const std::function<void()>& call) {
    const uint64_t before = FakeMonitor::calls().syncs;
    call();
    return FakeMonitor::calls().syncs - before;
  }
  FakeMonitor monitor_;
};

TEST_F(MallocHooks, LargeBlocksAreSyncedWhereMemoryWasPinned) {
  const auto large = [] {
    sink = malloc(kLarge);
    free(sink);
  };
  EXPECT_EQ(syncs_of(large), 0u);
  FakeMonitor::pin_everything();
  EXPECT_EQ(syncs_of(large), 1u);
}

TEST_F(MallocHooks, EveryMallocFunctionSyncsNewMappings) {
  FakeMonitor::pin_everything();
  const std::vector<std::pair<const char*, std::function<void*()>>> calls = {
      {"malloc", [] { return malloc(kLarge); }},
      {"calloc", [] { return calloc(2, kLarge / 2); }},
      {"realloc", [] { return realloc(nullptr, kLarge); }},
      {"reallocarray", [] { return reallocarray(nullptr, kLarge / 8, 8); }},
      {"memalign", [] { return memalign(kMiB, kLarge); }},
      {"aligned_alloc", [] { return aligned_alloc(64, kLarge); }},
      {"valloc", [] { return valloc(kLarge); }},
      {"pvalloc", [] { return pvalloc(kLarge); }},
      {"operator new", [] { return operator new(kLarge); }},
      {"posix_memalign",
       [] {
         void* p = nullptr;
         EXPECT_EQ(posix_memalign(&p, 4096, kLarge), 0);
         return p;
       }},
  };
  for (const auto& entry : calls) {
    const char* name = entry.first;
    void* p = nullptr;
    const uint64_t syncs = syncs_of([&] { p = entry.second(); });
    EXPECT_GE(syncs, 1u) << name;
    EXPECT_LE(syncs, 2u) << name;  // some call others of the family
    ASSERT_NE(p, nullptr) << name;
    std::memset(p, 1, kLarge);
    free(p);
  }
}

TEST_F(MallocHooks, AlignedBlocksAreCheckedToTheirEnd) {
  void* p = memalign(8 * kMiB, kLarge);
  ASSERT_NE(p, nullptr);
  free(p);
  // The same request is likely to get the same place; only its last block was pinned.
  FakeMonitor::pin(static_cast<char*>(p) + kLarge - 1, 1);
  void* again = nullptr;
  const uint64_t syncs = syncs_of([&] { again = memalign(8 * kMiB, kLarge); });
  EXPECT_EQ(syncs, again == p ? 1u : 0u);
  free(again);
}

TEST_F(MallocHooks, ReallocThatMovesALargeBlockSyncs) {
  auto* p = static_cast<char*>(malloc(kLarge));
  ASSERT_NE(p, nullptr);
  p[0] = 'a';
  p[kLarge - 1] = 'z';
  FakeMonitor::pin_everything();
  EXPECT_EQ(syncs_of([&] { p = static_cast<char*>(realloc(p, 4 * kLarge)); }), 1u);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(p[0], 'a');
  EXPECT_EQ(p[kLarge - 1], 'z');
  p = static_cast<char*>(realloc(p, 100));
  EXPECT_EQ(p[0], 'a');
  free(p);
}

// A sync may have the caches forget the range.
TEST_F(MallocHooks, BlockGrownInPlaceSyncsOnlyItsNewPart) {
  auto* p = static_cast<char*>(malloc(kLarge));
  ASSERT_NE(p, nullptr);
  FakeMonitor::pin_everything();
  auto* grown = static_cast<char*>(realloc(p, 2 * kLarge));
  ASSERT_NE(grown, nullptr);
  const auto addr = reinterpret_cast<uintptr_t>(grown);
  EXPECT_EQ(FakeMonitor::was_synced(addr, 1), grown != p);
  EXPECT_TRUE(FakeMonitor::was_synced(addr + 2 * kLarge - 1, 1));
  free(grown);
}

// By name: older libcs have no such function, and newer ones no cfree().
TEST_F(MallocHooks, EveryReleaseSettlesIfTheReaderIsBusy) {
  for (const char* name : {"free", "cfree", "free_sized", "free_aligned_sized"}) {
    const auto release =
        reinterpret_cast<void (*)(void*, size_t, size_t)>(dlsym(RTLD_DEFAULT, name));
    ASSERT_NE(release, nullptr) << name;
    void* memory = malloc(64);
    FakeMonitor::make_busy();
    const uint64_t before = FakeMonitor::calls().settles;
    release(memory, 64, 64);
    EXPECT_EQ(FakeMonitor::calls().settles, before + 1) << name;
  }
}

TEST_F(MallocHooks, SmallBlocksSyncOnlyWhereTheHeapGrows) {
  FakeMonitor::pin_everything();
  sink = malloc(64);
  free(sink);
  EXPECT_EQ(syncs_of([] {
              for (int i = 0; i < 1000; ++i) {
                sink = malloc(64);
                free(sink);
              }
            }),
            0u);
}

TEST_F(MallocHooks, GrowthOfTheMainArenaIsSynced) {
  FakeMonitor::pin_everything();
  std::vector<void*> held(1000);
  const char* before = static_cast<const char*>(sbrk(0));
  const uint64_t syncs = syncs_of([&] {
    for (void*& p : held) p = malloc(16 << 10);
  });
  const char* after = static_cast<const char*>(sbrk(0));
  ASSERT_GT(after, before);
  // libc grows it by 132 KiB or a little more each time: one sync each, not one per block.
  EXPECT_GE(syncs, static_cast<uint64_t>(after - before) / (256 << 10));
  EXPECT_LE(syncs, 500u);
  EXPECT_EQ(is_known_heap(held[0]), false);
  for (void* p : held) free(p);
  for (void*& p : held) p = malloc(16 << 10);
  for (void* p : held) free(p);
}

TEST_F(MallocHooks, HeapsOfOtherArenasAreMarkedAndSyncedOnce) {
  FakeMonitor::pin_everything();
  uint64_t at_first = 0;
  uint64_t later = 0;
  bool known = false;
  std::thread([&] {
    void* p = nullptr;
    at_first = syncs_of([&] { p = malloc(1000); });
    known = is_marked(p);
    later = syncs_of([&] {
      for (size_t i = 1; i < 100; ++i) {
        sink = malloc(i * 10);
        free(sink);
      }
    });
    free(p);
  }).join();
  EXPECT_TRUE(known);
  EXPECT_LE(at_first, 1u);  // 0 if the thread library has allocated before us
  EXPECT_EQ(later, 0u);
}

// libc deletes a heap when its last block is freed, inside free(), and may map the next one at the same
// address, inside malloc(): that one is new memory.
TEST_F(MallocHooks, HeapRemappedAtItsAddressIsSynced) {
  FakeMonitor::pin_everything();
  mallopt(M_TOP_PAD, 0);  // or the heap before would be kept as full as that
  std::thread([] {
    constexpr size_t kBytes = 100 << 10;  // less than what gets a mapping of its own
    std::vector<void*> held;
    held.reserve(2000);
    held.push_back(malloc(kBytes));
    const uint64_t* first = mark_of_heap(held[0]);
    while (mark_of_heap(held.back()) == first && held.size() < 2000) held.push_back(malloc(kBytes));
    const uint64_t* second = mark_of_heap(held.back());
    ASSERT_NE(second, first);
    EXPECT_NE(*second, 0u);
    // Repeatedly frees the last block of the second heap, so that libc deletes that heap.
    for (int round = 0; round < 3; ++round) {
      free(held.back());
      const uint64_t syncs = syncs_of([&held] { held.back() = malloc(kBytes); });
      EXPECT_EQ(syncs, 1u);
      EXPECT_TRUE(is_marked(held.back()));
    }
    // Another block of an existing heap is not synced.
    void* more = nullptr;
    EXPECT_EQ(syncs_of([&more] { more = malloc(kBytes); }), 0u);
    free(more);
    for (void* p : held) free(p);
  }).join();
}

TEST_F(MallocHooks, HeapsAreMarkedWithoutAMonitorToo) {
  __atomic_store_n(&hooks()->monitor, nullptr, __ATOMIC_RELEASE);
  std::thread([] {
    void* p = malloc(1000);
    EXPECT_TRUE(is_marked(p));
    free(p);
  }).join();
}

TEST_F(MallocHooks, AllocatingAndFreeingSettleIfTheReaderIsBusy) {
  void* p = nullptr;
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"malloc", [&] { p = malloc(100); }},
      {"realloc", [&] { p = realloc(p, 200); }},
      {"free", [&] { free(p); }},
      {"calloc", [&] { free(calloc(1, 100)); }},
      {"reallocarray", [&] { p = reallocarray(nullptr, 3, 5); }},
      {"operator delete", [&] { operator delete(p); }},
      {"aligned_alloc", [&] { sink = aligned_alloc(64, 64); }},
      {"memalign", [&] { sink = memalign(64, 64); }},
      {"posix_memalign", [&] { EXPECT_EQ(posix_memalign(&p, 64, 64), 0); }},
      {"valloc", [&] { sink = valloc(64); }},
      {"pvalloc", [&] { sink = pvalloc(64); }},
      {"malloc_trim", [&] { malloc_trim(0); }},
  };
  for (const auto& [name, call] : calls) {
    const uint64_t before = FakeMonitor::calls().settles;
    FakeMonitor::make_busy();
    call();
    EXPECT_EQ(FakeMonitor::calls().settles, before + 1) << name;
  }
}

TEST_F(MallocHooks, FreeingThreadIsMarkedInside) {
  FakeMonitor::set_removals(5);
  std::atomic<const hydrant_hooks_thread_t*> record = nullptr;
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    record = own_record();
    while (!stop) {
      sink = malloc(kLarge);
      std::memset(sink, 1, 2 * kMiB);
      free(sink);
    }
  });
  const auto deadline =
      std::chrono::steady_clock::now() + testing::patiently(std::chrono::seconds(60));
  bool seen = false;
  while (!seen && std::chrono::steady_clock::now() < deadline) {
    const hydrant_hooks_thread_t* watched = record;
    seen = watched != nullptr && __atomic_load_n(&watched->entered, __ATOMIC_ACQUIRE) == 5;
  }
  stop = true;
  worker.join();
  EXPECT_TRUE(seen);
}

TEST_F(MallocHooks, RefusalsAreLibcs) {
  FakeMonitor::pin_everything();
  volatile size_t absurd = SIZE_MAX / 2 + 1;
  errno = 0;
  EXPECT_EQ(malloc(absurd), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(calloc(absurd, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(reallocarray(nullptr, absurd, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  int other = 0;
  void* p = &other;
  errno = 0;
  EXPECT_EQ(posix_memalign(&p, 3, 8), EINVAL);
  EXPECT_EQ(p, &other);
  EXPECT_EQ(errno, 0);
  void* kept = malloc(10);
  EXPECT_EQ(realloc(kept, absurd), nullptr);
  free(kept);
  free(nullptr);
  errno = ERANGE;
  FakeMonitor::make_busy();
  free(malloc(kLarge));
  EXPECT_EQ(errno, ERANGE);
}

}  // namespace
}  // namespace hydrant::testing
