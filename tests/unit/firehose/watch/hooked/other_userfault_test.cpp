// Another userfaultfd of the program, in a process with the hooks: it registers memory that the monitor
// watches.
#include <hydrant/pin_cache.h>

#include "tests/support/own_userfault.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace hydrant::testing {
namespace {

class OtherUserfault : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (IsSkipped()) return;
#if HYDRANT_MUTANTS
    Upkeep::set_delay_ns(1'000'000);  // forgotten memory is deregistered while the hook waits
#endif
    create(watching());
  }
  // Kept, and so watched; the number of its registration.
  uint64_t keep(size_t page) {
    EXPECT_TRUE(becomes_quiet());
    const uint64_t number = use(page, 4);
    EXPECT_EQ(use(page, 4), number);
    return number;
  }
  int other_watch(size_t page, size_t pages = 4) const {
    return other_.watch(arena_.page(page), pages * kPage);
  }

  OwnUserfault other_;
};

// Both lie in one mapping.
TEST_F(OtherUserfault, GetsMemoryBesideWhatIsCached) {
  const uint64_t kept = keep(4);
  EXPECT_EQ(other_watch(8), 0);
  EXPECT_EQ(use(4, 4), kept) << "what is cached stays so";
  renew(4, 4);
  EXPECT_NE(use(4, 4), kept) << "and watched";
}

TEST_F(OtherUserfault, GetsWhatIsCachedAndNotHeld) {
  const uint64_t kept = keep(4);
  EXPECT_EQ(other_watch(4), 0);
  EXPECT_EQ(coverage(4, 4), HYDRANT_COVERAGE_NONE);
  EXPECT_NE(use(4, 4), kept);
  renew(4, 4);
  EXPECT_NE(use(4, 4), kept);
}

TEST_F(OtherUserfault, DoesNotGetWhatIsHeld) {
  const hydrant_pin_t held = pin(4, 4);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(other_watch(2), EBUSY);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(other_watch(2), 0);
}

TEST_F(OtherUserfault, OfAnotherComponentKeepsItsMemory) {
  keep(4);
  ASSERT_EQ(other_watch(8), 0);
  const OwnUserfault third;
  EXPECT_EQ(third.watch(arena_.page(8), kPage), EBUSY);
  EXPECT_EQ(third.watch(arena_.page(4), 4 * kPage), 0);
}

TEST_F(OtherUserfault, ErrorsOfItsCallsAreTheKernels) {
  keep(4);
  EXPECT_EQ(other_.watch(nullptr, 0), EINVAL);
  errno = 0;
  EXPECT_EQ(ioctl(-1, UFFDIO_REGISTER, nullptr), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace hydrant::testing
