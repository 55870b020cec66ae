// Memory that the program has released goes back to the registrar: at the next poll.
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
#endif

}  // namespace
}  // namespace hydrant::testing
