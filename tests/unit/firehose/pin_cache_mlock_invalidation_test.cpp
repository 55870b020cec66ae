// A domain over the registrar mlock whose memory is announced by the client or by an allocator, or is watched
// while a pin of old memory is held: what the program locks at the same addresses afterwards stays locked.
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/mlocked_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace hydrant::testing {
namespace {

class PinCacheMlockInvalidation : public MlockedPinCache {
 protected:
  int invalidate(size_t page, size_t pages) {
    return hydrant_invalidate(domain_, arena_.page(page), pages * kPage);
  }
  void unpin_the_rest() {
    EXPECT_GE(hydrant_poll(domain_), 0);
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  }
};

// Merging leaves the smaller regions dead. They have no holder, and are undone before the call returns.
TEST_F(PinCacheMlockInvalidation, NothingIsUnlockedAfterTheInvalidationReturns) {
  for (const uint32_t watch : {HYDRANT_WATCH_CLIENT, HYDRANT_WATCH_AUTO}) {
    create_over_mlock(watch);
    if (IsSkipped()) return;
    const bool vouches = watch != HYDRANT_WATCH_CLIENT;
    if (vouches) {
      ASSERT_EQ(hydrant_vouch(domain_, arena_.page(0), 16 * kPage), GASNET_OK);
    }
    keep(0, 1);
    keep(1, 1);
    keep(2, 4);
    keep(0, 16);
    ASSERT_NE(stats_of(domain_).dead_regions, 0u);
    EXPECT_EQ(vouches ? hydrant_unvouch(domain_, arena_.page(0), 16 * kPage) : invalidate(0, 16),
              GASNET_OK);
    EXPECT_EQ(stats_of(domain_).dead_regions, 0u);
    EXPECT_EQ(count_locked(0, 16), 0u);
    renew(0, 16);
    ASSERT_TRUE(lock(0, 16));
    unpin_the_rest();
    EXPECT_EQ(count_locked(0, 16), 16u) << watch;
    destroy();
    renew(0, 16);
  }
}

// Another thread may be about to unlock what it found dead.
TEST_F(PinCacheMlockInvalidation, InvalidationWaitsForUnpinsInOtherThreads) {
  create_over_mlock(HYDRANT_WATCH_CLIENT);
  if (IsSkipped()) return;
  std::atomic<bool> stops{false};
  Threads threads;
  threads.start([&] {
    while (!stops) (void)hydrant_flush(domain_);
  });
  size_t lost = 0;
  for (int i = 0; i < 2000; ++i) {
    keep(0, 4);
    EXPECT_EQ(invalidate(0, 4), GASNET_OK);
    renew(0, 4);
    ASSERT_TRUE(lock(0, 4));
    for (int looks = 0; looks < 4; ++looks) lost += count_locked(0, 4) != 4 ? 1 : 0;
    renew(0, 4);
  }
  stops = true;
  threads.join();
  EXPECT_EQ(lost, 0u);
}

// A plain arena may be unmapped at once after invalidate(), which cannot unpin: its caller may hold locks of
// an allocator.
TEST_F(PinCacheMlockInvalidation, RemappedArenaMemoryKeepsTheProgramsLock) {
  create_over_mlock(HYDRANT_WATCH_AUTO, 1);
  if (IsSkipped()) return;
  ASSERT_EQ(the_monitor().add_arena(arena_.addr(0), 64 * kPage), 0);
  ASSERT_EQ(coverage(4, 8), HYDRANT_COVERAGE_ARENA);
  for (const bool is_held : {false, true}) {
    const hydrant_pin_t held = pin(4, 8);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    if (!is_held) {
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    }
    the_monitor().invalidate(arena_.addr(4), 8 * kPage);
    renew(4, 8);
    the_monitor().invalidate(arena_.addr(4), 8 * kPage);
    ASSERT_TRUE(lock(4, 8));
    if (is_held) {
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    }
    unpin_the_rest();
    EXPECT_EQ(count_locked(4, 8), 8u) << is_held;
    renew(4, 8);
  }
  // Memory that is invalidated and stays mapped is unlocked.
  keep(4, 8);
  the_monitor().invalidate(arena_.addr(4), 8 * kPage);
  unpin_the_rest();
  EXPECT_EQ(count_locked(4, 8), 0u);
  the_monitor().drop_arena(arena_.addr(0), 64 * kPage);
}

TEST_F(PinCacheMlockInvalidation, LastUnpinOfOldMemoryKeepsTheLockOfTheNew) {
  create_over_mlock(HYDRANT_WATCH_AUTO, 1);
  if (IsSkipped()) return;
  ASSERT_TRUE(becomes_quiet());
  const hydrant_pin_t old_pin = pin(4, 8);
  ASSERT_NE(old_pin.region, nullptr) << hydrant_error_text();
  renew(4, 8);
  ASSERT_TRUE(becomes_quiet());
  keep(4, 8);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(count_locked(4, 8), 0u) << "the pin of the new memory has ended";
  ASSERT_TRUE(lock(4, 8));
  EXPECT_EQ(hydrant_release(old_pin), GASNET_OK);
  unpin_the_rest();
  EXPECT_EQ(count_locked(4, 8), 8u);
}

TEST_F(PinCacheMlockInvalidation, RegistrarsStampsAreNotKeys) {
  create_over_mlock(HYDRANT_WATCH_AUTO);
  if (IsSkipped()) return;
  EXPECT_EQ(hydrant_key_bytes(domain_), 0u);
  const hydrant_pin_t held = pin(4, 8);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(held.region->key, nullptr);
  EXPECT_EQ(hydrant_pin_key_bytes(held), 0u);
  hydrant_region_t part{};
  EXPECT_EQ(hydrant_pin_parts(held, 0, &part), 1u);
  EXPECT_EQ(part.key, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
