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
TEST_F(OtherUserfault, GetsMemoryNextToCachedMemory) {
  const uint64_t kept = keep(4);
  EXPECT_EQ(other_watch(8), 0);
  EXPECT_EQ(use(4, 4), kept) << "what is cached stays so";
  renew(4, 4);
  EXPECT_NE(use(4, 4), kept) << "and watched";
}

TEST_F(OtherUserfault, GetsCachedUnheldMemory) {
  const uint64_t kept = keep(4);
  EXPECT_EQ(other_watch(4), 0);
  EXPECT_EQ(coverage(4, 4), HYDRANT_COVERAGE_NONE);
  EXPECT_NE(use(4, 4), kept);
  renew(4, 4);
  EXPECT_NE(use(4, 4), kept);
}

// The state after a report that could not be entered; beside it lies memory that the set has.
TEST_F(OtherUserfault, GetsRegisteredMemoryThatTheSetHasLost) {
  keep(4);
  keep(20);
  the_monitor().not_watched(arena_.addr(4), 4 * kPage);
  ASSERT_EQ(hydrant_poll(domain_), GASNET_OK);
  EXPECT_EQ(other_watch(4, 20), 0);
}

// The hook unregisters memory on demand; each unregistration costs a walk over the page tables.
TEST_F(OtherUserfault, NothingIsUnwatchedWithoutARequest) {
  keep(4);
  ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(4), 4 * kPage), GASNET_OK);
  ASSERT_EQ(hydrant_poll(domain_), GASNET_OK);
  the_monitor().unwatch_idle();
  uffdio_register past_the_hook{};
  past_the_hook.range = {arena_.addr(4), 4 * kPage};
  past_the_hook.mode = UFFDIO_REGISTER_MODE_MISSING;
  EXPECT_EQ(syscall(SYS_ioctl, other_.descriptor(), UFFDIO_REGISTER, &past_the_hook), -1);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(other_watch(4), 0);
}

// Before Linux 6.17 that ends the monitor's registrations, too; the cache forgets the range on any kernel.
TEST_F(OtherUserfault, UnregisteredMemoryIsForgotten) {
  ASSERT_EQ(other_watch(4), 0);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(0), 32 * kPage), GASNET_OK);
  const uint64_t kept = use(4, 4);
  const uint64_t beside = use(12, 4);
  EXPECT_EQ(use(4, 4), kept);
  uffdio_range given_up{arena_.addr(4), 4 * kPage};
  ASSERT_EQ(ioctl(other_.descriptor(), UFFDIO_UNREGISTER, &given_up), 0);
  EXPECT_NE(use(4, 4), kept);
  EXPECT_EQ(use(12, 4), beside);
}

TEST_F(OtherUserfault, DoesNotGetHeldMemory) {
  const hydrant_pin_t held = pin(4, 4);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(other_watch(2), EBUSY);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(other_watch(2), 0);
}

TEST_F(OtherUserfault, OtherComponentKeepsItsMemory) {
  keep(4);
  ASSERT_EQ(other_watch(8), 0);
  const OwnUserfault third;
  EXPECT_EQ(third.watch(arena_.page(8), kPage), EBUSY);
  EXPECT_EQ(third.watch(arena_.page(4), 4 * kPage), 0);
}

TEST_F(OtherUserfault, ErrorsAreTheKernels) {
  keep(4);
  EXPECT_EQ(other_.watch(nullptr, 0), EINVAL);
  errno = 0;
  EXPECT_EQ(ioctl(-1, UFFDIO_REGISTER, nullptr), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace hydrant::testing
