// The cache in a process with the hooks: what is hit without a check, and what is not.
#include <hydrant/pin_cache.h>

#include "firehose/watch/hooks_abi.h"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/ipc.h>
#include <sys/shm.h>

namespace hydrant::testing {
namespace {

class PinCacheWithHooks : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (IsSkipped()) return;
    hooks_ = static_cast<const hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
    ASSERT_NE(hooks_, nullptr) << "to be run with the hooks preloaded";
    ASSERT_EQ(hooks_->families, HYDRANT_HOOKS_ALL);
    create(watching());
  }
  uint32_t coverage_of(const void* addr, size_t len) {
    uint32_t answer = ~0u;
    EXPECT_TRUE(becomes_quiet());
    EXPECT_EQ(hydrant_coverage(domain_, addr, len, &answer), GASNET_OK);
    return answer;
  }
  bool is_heap(const void* memory) const {
    const uintptr_t block = reinterpret_cast<uintptr_t>(memory) >> HYDRANT_HOOKS_HEAP_SHIFT;
    return (__atomic_load_n(&hooks_->heap_blocks[block / 64], __ATOMIC_ACQUIRE) >> block % 64 &
            1) != 0;
  }

  const hydrant_hooks_t* hooks_ = nullptr;
};

TEST_F(PinCacheWithHooks, MappedMemoryIsHitWithoutACheck) {
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_WATCHED);
}

// libc maps and unmaps heaps past every hook: each heap has a mark in its own memory.
TEST_F(PinCacheWithHooks, HeapsOfThreadsAreHitWithoutACheck) {
  Threads threads;
  threads.start([this] {
    constexpr size_t kBytes = 64 << 10;  // less than what gets a mapping of its own
    auto* memory = static_cast<char*>(malloc(kBytes));
    ASSERT_NE(memory, nullptr);
    ASSERT_FALSE(is_heap(memory)) << "not marked";
    std::memset(memory, 1, kBytes);
    EXPECT_EQ(coverage_of(memory + kPage, kPage), HYDRANT_COVERAGE_WATCHED);
    free(memory);
  });
  threads.join();
}

// A range over the border of a block whose coming is not seen is no better than that.
TEST_F(PinCacheWithHooks, MemoryThatReachesIntoAHeapIsChecked) {
  EXPECT_EQ(coverage_of(arena_.page(0), 2 * kPage), HYDRANT_COVERAGE_WATCHED);
  auto* words = const_cast<uint64_t*>(hooks_->heap_blocks);
  const uintptr_t block = arena_.addr(1) >> HYDRANT_HOOKS_HEAP_SHIFT;
  const uint64_t before =
      __atomic_fetch_or(&words[block / 64], uint64_t{1} << block % 64, __ATOMIC_ACQ_REL);
  EXPECT_EQ(coverage_of(arena_.page(0), 2 * kPage), HYDRANT_COVERAGE_CHECKED);
  __atomic_store_n(&words[block / 64], before, __ATOMIC_RELEASE);
}

// The kernel reports neither the release of memory under a segment nor, later, that of the segment.
TEST_F(PinCacheWithHooks, SegmentAttachedOverCachedMemoryIsNotHit) {
  const int id = shmget(IPC_PRIVATE, 2 * kPage, IPC_CREAT | 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory: " << std::strerror(errno);
  const uint64_t first = use(4);
  ASSERT_EQ(use(4), first);
  void* segment = shmat(id, arena_.page(4), SHM_REMAP);
  shmctl(id, IPC_RMID, nullptr);
  ASSERT_EQ(segment, arena_.page(4)) << std::strerror(errno);
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_NONE);
  const uint64_t second = use(4);
  EXPECT_GT(second, first);
  EXPECT_FALSE(is_cached(4));
  ASSERT_EQ(shmdt(segment), 0);
  map(4, 2);
  EXPECT_GT(use(4), second);
}

}  // namespace
}  // namespace hydrant::testing
