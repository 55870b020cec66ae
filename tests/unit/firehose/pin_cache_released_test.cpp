// Memory that the program has released goes back to the registrar: at the next poll or miss.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {
namespace {

class PinCacheReleased : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!IsSkipped()) create(watching());
  }
  void TearDown() override {
#if HYDRANT_MUTANTS
    set_mutant(Mutant::kNone, 0);
    set_busy_mutex(false);
#endif
    WatchedPinCache::TearDown();
  }
  // Pinned once, and gone.
  void use_and_unmap(size_t page, size_t pages = 1) {
    use(page, pages);
    unmap(page, pages);
    the_monitor().settle();
  }
  uint64_t dead() const { return stats_of(domain_).dead_regions; }
};

// The call that releases memory returns when its report was read, which may be before the cache is told.
TEST_F(PinCacheReleased, PollRightAfterTheReleaseLeavesNothingPinned) {
  use(4);  // the watch runs
#if HYDRANT_MUTANTS
  constexpr unsigned kSlowReaderUs = 20'000;
  set_mutant(Mutant::kNone, kSlowReaderUs);
#endif
  for (int tries = 0; tries < 10; ++tries) {
    use(8, 4);
    unmap(8, 4);
    EXPECT_EQ(hydrant_poll(domain_), 0);
    EXPECT_EQ(registrar_.live_bytes(), kPage) << "try " << tries;
    EXPECT_EQ(dead(), 0u);
    map(8, 4);
  }
}

#if HYDRANT_MUTANTS
TEST_F(PinCacheReleased, PollFindsWhatWasToldWithoutTheMutex) {
  use(8);
  set_busy_mutex(true);
  unmap(8);
  the_monitor().settle();
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 0u);
  map(8);
}

TEST_F(PinCacheReleased, TheNextMissGivesBackLittleMemory) {
  use_and_unmap(8);
  EXPECT_EQ(dead(), 1u);
  use(40);
  EXPECT_EQ(registrar_.live_bytes(), kPage);
  EXPECT_EQ(dead(), 0u);
  map(8);
}

TEST_F(PinCacheReleased, AHitGivesNothingBack) {
  use(40);
  use_and_unmap(8);
  const uint64_t fences = stats_of(domain_).fences;
  for (int i = 0; i < 10; ++i) use(40);
  EXPECT_EQ(registrar_.unpins(), 0u);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  map(8);
}

TEST_F(PinCacheReleased, AMissGivesBackOnePieceAndAPollTheRest) {
  destroy();
  hydrant_domain_options_t options = watching();
  options.merge_bytes = 1;
  create(options);
  constexpr size_t kRegions = 200;
  constexpr size_t kPiece = 64;
  for (size_t i = 0; i < kRegions; ++i) use(2 * i);
  ASSERT_EQ(registrar_.live(), kRegions);
  unmap(0, 2 * kRegions);
  the_monitor().settle();
  const uint64_t fences = stats_of(domain_).fences;
  use(450);
  EXPECT_EQ(registrar_.live(), kRegions - kPiece + 1);
  EXPECT_LE(stats_of(domain_).fences, fences + 1) << "one fence serves the piece";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 1u);
  map(0, 2 * kRegions);
}

TEST_F(PinCacheReleased, HeldMemoryIsLookedAtOnce) {
  const hydrant_pin_t held = pin(8);
  unmap(8);
  the_monitor().settle();
  use(40);
  const uint64_t fences = stats_of(domain_).fences;
  for (size_t page = 50; page < 60; page += 2) use(page);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  EXPECT_EQ(dead(), 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(dead(), 0u);
  map(8);
}
#endif

}  // namespace
}  // namespace hydrant::testing
