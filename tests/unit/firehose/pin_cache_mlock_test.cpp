// A watching domain over the registrar mlock: memory that is released while it is registered, and locks that
// the program takes on later memory at the same addresses.
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/firehose/mlocked_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace hydrant::testing {
namespace {

class PinCacheMlock : public MlockedPinCache, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void SetUp() override {
    MlockedPinCache::SetUp();
    if (!IsSkipped()) create_over_mlock(HYDRANT_WATCH_AUTO, 1, GetParam());
  }

  void keep(size_t page, size_t pages) {
    ASSERT_TRUE(becomes_quiet());
    MlockedPinCache::keep(page, pages);
    ASSERT_EQ(count_locked(page, pages), pages);
  }
  // Unpins the regions whose release was reported before.
  void unpin_released() {
    ASSERT_TRUE(becomes_quiet());
    ASSERT_GE(hydrant_poll(domain_), 0);
    ASSERT_EQ(stats_of(domain_).dead_regions, 0u);
  }
};

TEST_P(PinCacheMlock, NewMemoryThatTheProgramLocksStaysLocked) {
  keep(4, 8);
  renew(4, 8);
  ASSERT_TRUE(lock(4, 8));
  unpin_released();
  EXPECT_EQ(count_locked(4, 8), 8u);
}

TEST_P(PinCacheMlock, BytesThatStayLockedAreCounted) {
  ASSERT_TRUE(lock(6, 2));
  keep(4, 8);
  EXPECT_EQ(stats_of(domain_).left_locked_bytes, 0u) << "they are pinned";
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(count_locked(4, 8), 2u);
  EXPECT_EQ(stats_of(domain_).left_locked_bytes, 2 * kPage);
  keep(4, 8);
  ASSERT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(stats_of(domain_).left_locked_bytes, 4 * kPage);
}

TEST_P(PinCacheMlock, ReplacedPartStaysLockedAndTheRestIsUnlocked) {
  keep(4, 8);
  ASSERT_NE(mmap(arena_.page(6), 2 * kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  ASSERT_TRUE(lock(6, 2));
  unpin_released();
  hydrant_flush(domain_);
  EXPECT_EQ(count_locked(6, 2), 2u);
  EXPECT_EQ(count_locked(4, 8), 2u);
}

TEST_P(PinCacheMlock, HeldPinOfOldMemoryKeepsTheLockOfTheNew) {
  ASSERT_TRUE(becomes_quiet());
  const hydrant_pin_t held = pin(4, 4);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  renew(4, 4);
  ASSERT_TRUE(lock(4, 4));
  ASSERT_TRUE(becomes_quiet());
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  unpin_released();
  EXPECT_EQ(count_locked(4, 4), 4u);
}

TEST_P(PinCacheMlock, NewMemoryPinnedAtOldAddressesIsUnlockedByItsUnpin) {
  ASSERT_TRUE(becomes_quiet());
  const hydrant_pin_t old_pin = pin(4, 4);
  ASSERT_NE(old_pin.region, nullptr) << hydrant_error_text();
  renew(4, 4);
  keep(4, 4);
  EXPECT_EQ(hydrant_release(old_pin), GASNET_OK);
  EXPECT_EQ(count_locked(4, 4), 4u);
  hydrant_flush(domain_);
  EXPECT_EQ(count_locked(4, 4), 0u);
}

TEST_P(PinCacheMlock, UnpinOfMovedMemoryKeepsTheLockOfItsSuccessor) {
  keep(4, 4);
  void* moved =
      mremap(arena_.page(4), 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, arena_.page(40));
  ASSERT_EQ(moved, arena_.page(40)) << strerror(errno);
  map(4, 4);
  ASSERT_TRUE(lock(4, 4));
  unpin_released();
  EXPECT_EQ(count_locked(4, 4), 4u);
}

// Pages that are emptied keep the lock of their mapping, which is the registrar's.
TEST_P(PinCacheMlock, EmptiedMemoryIsUnlocked) {
  keep(4, 4);
  if (madvise(arena_.page(4), 4 * kPage, MADV_DONTNEED_LOCKED) != 0)
    GTEST_SKIP() << "emptying locked memory needs Linux 5.18";
  EXPECT_EQ(count_locked(4, 4), 4u);
  unpin_released();
  hydrant_flush(domain_);
  EXPECT_EQ(count_locked(4, 4), 0u);
}

// Threads map, pin, unmap and sometimes lock memory of their own: no lock of theirs is lost, and no lock of
// the registrar stays.
TEST_P(PinCacheMlock, ThreadsKeepTheirLocksWhileOthersPinAndUnmap) {
  constexpr size_t kOwn = 8;
  std::atomic<int> lost{0};
  Threads threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.start([&, t] {
      const size_t page = 64 + 64 * t;
      for (int i = 0; i < 300; ++i) {
        const hydrant_pin_t held = pin(page, kOwn);
        if (held.region != nullptr) (void)hydrant_release(held);
        renew(page, kOwn);
        const bool mine = i % 2 == 0 && lock(page + 2, 4);
        if (i % 3 == 0) (void)hydrant_poll(domain_);
        if (!mine) continue;
        if (count_locked(page + 2, 4) != 4) ++lost;
        renew(page, kOwn);
      }
    });
  }
  threads.join();
  EXPECT_EQ(lost, 0);
  unpin_released();
  hydrant_flush(domain_);
  EXPECT_EQ(count_locked(64, 256), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheMlock,
                         ::testing::Values(uint32_t{HYDRANT_MODE_REGION},
                                           uint32_t{HYDRANT_MODE_PAGE}),
                         mode_name);

// Sequential pins of memory in which the program locks a page before each pin.
class PinCacheMlockSequence : public MlockedPinCache {
 protected:
  static constexpr size_t kPins = 48;
  static constexpr size_t kPages = 8;

  // The number of the program's locks that are lost.
  size_t count_lost() {
    EXPECT_TRUE(becomes_quiet());
    for (size_t i = 0; i < kPins; ++i) {
      EXPECT_TRUE(lock(i * kPages + 2, 1));
      keep(i * kPages, kPages);
    }
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    size_t lost = 0;
    for (size_t i = 0; i < kPins; ++i) lost += 1 - count_locked(i * kPages + 2, 1);
    return lost;
  }
};

TEST_F(PinCacheMlockSequence, LocksBeforeTheFirstPinStay) {
  const ScopedEnv unset("FIREHOSE_STREAM", nullptr);
  create_over_mlock(HYDRANT_WATCH_AUTO);
  if (IsSkipped()) return;
  EXPECT_EQ(count_lost(), 0u);
  EXPECT_EQ(stats_of(domain_).extended_bytes, 0u);
}

TEST_F(PinCacheMlockSequence, ReadAheadIsThereIfTheEnvironmentAsksForIt) {
  const ScopedEnv stream("FIREHOSE_STREAM", "4M");
  create_over_mlock(HYDRANT_WATCH_AUTO);
  if (IsSkipped()) return;
  count_lost();
  EXPECT_NE(stats_of(domain_).extended_bytes, 0u);
}

}  // namespace
}  // namespace hydrant::testing
