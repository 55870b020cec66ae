// A cache that watches memory by itself: what it keeps, what it forgets, what it never keeps.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <linux/userfaultfd.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <vector>

namespace hydrant::testing {
namespace {

class PinCacheWatch : public WatchedPinCache, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!IsSkipped()) create(watching(GetParam()));
  }
};

TEST_P(PinCacheWatch, OrdinaryMemoryIsCachedAfterItsFirstPin) {
  const uint64_t first = use(3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(use(3), first);
  EXPECT_EQ(registrar_.pin_calls(), 1u);
  EXPECT_EQ(coverage(3), HYDRANT_COVERAGE_CHECKED);
  EXPECT_EQ(stats_of(domain_).regions, 1u);
}

// Most memory that a network layer tries is not pinned: a failed try must not cost a system call.
TEST_P(PinCacheWatch, TryPinOfUncachedMemoryDoesNotQueryTheKernel) {
  if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer ends a child that starts a thread";
  const auto try_page = [this](size_t page) {
    return hydrant_try_pin(domain_, arena_.page(page), kPage, HYDRANT_LOCAL_WRITE);
  };
  const auto after_asking_is_forbidden = [&](size_t page) -> std::string {
    (void)use(3);
    if (!becomes_quiet()) return "never quiet";
    if (const hydrant_pin_t held = try_page(3); hydrant_release(held) != GASNET_OK)
      return "not kept";
    constexpr auto kAsk = static_cast<uint32_t>(UFFDIO_WRITEPROTECT);
    if (const std::string why = refuse_system_call(SYS_ioctl, 0, kAsk); !why.empty()) return why;
    const hydrant_pin_t other = try_page(page);
    return hydrant_pin_status(other) == GASNET_ERR_NOT_READY ? "" : "not NOT_READY";
  };
  EXPECT_EQ(run_in_child([&] { return after_asking_is_forbidden(9); }), "");
  EXPECT_NE(run_in_child([&] { return after_asking_is_forbidden(3); }), "")
      << "the kernel is not queried any more";
}

TEST_P(PinCacheWatch, NewMappingAtTheSameAddressesIsRegistered) {
  uint64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_GT(use(5), last) << "round " << i;
    // The reader may be slower than a pin's patience; then that one was not kept.
    ASSERT_TRUE(becomes_quiet());
    last = use(5);
    ASSERT_EQ(use(5), last);
    renew(5);
  }
  EXPECT_GE(registrar_.pin_calls(), 50u);
}

TEST_P(PinCacheWatch, MappingOverCachedMemoryInvalidatesIt) {
  const uint64_t first = use(5);
  ASSERT_NE(mmap(arena_.page(5), kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_GT(use(5), first);
}

TEST_P(PinCacheWatch, OnlyReleasedMemoryIsForgotten) {
  std::vector<uint64_t> before;
  for (size_t page = 0; page < 8; page += 2) before.push_back(use(page));
  renew(2);
  EXPECT_EQ(use(0), before[0]);
  EXPECT_GT(use(2), before[3]);
  EXPECT_EQ(use(4), before[2]);
  EXPECT_EQ(use(6), before[3]);
}

TEST_P(PinCacheWatch, MovedMemoryIsForgottenAtBothAddresses) {
  const uint64_t source = use(4);
  const uint64_t target = use(9);
  ASSERT_EQ(mremap(arena_.page(4), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, arena_.page(9)),
            arena_.page(9));
  map(4);
  EXPECT_GT(use(4), source);
  EXPECT_GT(use(9), target);
  EXPECT_EQ(coverage(9), HYDRANT_COVERAGE_CHECKED);
}

TEST_P(PinCacheWatch, RemovedMemoryIsNotKeptUntilItIsNew) {
  const uint64_t first = use(4);
  for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
    remove(4, 1, advice);
    EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_NONE);
    const uint64_t second = use(4);
    EXPECT_GT(second, first);
    EXPECT_GT(use(4), second) << "pinned while held, and no longer";
    EXPECT_FALSE(is_cached(4));
    renew(4);
    EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_CHECKED);
    const uint64_t third = use(4);
    EXPECT_EQ(use(4), third);
  }
}

TEST_P(PinCacheWatch, HeldPinSurvivesUntilItsRelease) {
  const hydrant_pin_t one = pin(4);
  const hydrant_pin_t two = pin(4);
  ASSERT_NE(one.region, nullptr);
  ASSERT_NE(two.region, nullptr);
  const uint64_t first = serial(one);
  renew(4);
  const hydrant_pin_t fresh = pin(4);
  ASSERT_NE(fresh.region, nullptr);
  EXPECT_GT(serial(fresh), first);
  EXPECT_TRUE(registrar_.is_live(first, arena_.addr(4), kPage, HYDRANT_LOCAL_WRITE));
  EXPECT_EQ(serial(one), first) << "a pin does not change";
  EXPECT_EQ(hydrant_release(one), GASNET_OK);
  EXPECT_TRUE(registrar_.is_live(first, arena_.addr(4), kPage, HYDRANT_LOCAL_WRITE));
  EXPECT_EQ(hydrant_release(two), GASNET_OK);
  EXPECT_FALSE(registrar_.is_live(first, arena_.addr(4), kPage, HYDRANT_LOCAL_WRITE));
  EXPECT_EQ(hydrant_release(fresh), GASNET_OK);
  EXPECT_EQ(use(4), first + 1);
}

TEST_P(PinCacheWatch, PollUnpinsReleasedUnheldMemory) {
  use(4);
  use(6);
  unmap(4);
  unmap(6);
  the_monitor().settle();
  EXPECT_EQ(stats_of(domain_).dead_regions, 2u);
  EXPECT_EQ(registrar_.live(), 2u) << "never in the thread that reports";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(stats_of(domain_).dead_regions, 0u);
  EXPECT_EQ(stats_of(domain_).charged_bytes, 0u);
  map(4);
  map(6);
}

TEST_P(PinCacheWatch, MuchThatWentIsDeregisteredByTheNextMiss) {
  destroy();
  hydrant_domain_options_t options = watching(GetParam());
  options.budget_bytes = 64 * kPage;
  create(options);
  use(4, 9);
  unmap(4, 9);
  the_monitor().settle();
  EXPECT_EQ(registrar_.live_bytes(), 9 * kPage) << "never in the thread that reports";
  use(40);
  EXPECT_EQ(registrar_.live_bytes(), kPage) << "more than an eighth of the budget was dead";
  map(4, 9);
}

TEST_P(PinCacheWatch, DeadRegionsMakeRoomForNewOnes) {
  destroy();
  hydrant_domain_options_t options = watching(GetParam());
  options.budget_bytes = 4 * kPage;
  create(options);
  for (int round = 0; round < 5; ++round) {
    for (size_t page = 0; page < 8; page += 2) use(page);
    for (size_t page = 0; page < 8; page += 2) renew(page);
  }
  EXPECT_LE(registrar_.live_bytes(), 4 * kPage);
}

TEST_P(PinCacheWatch, ReleaseDuringARegistrationPoisonsIt) {
  use(20);  // the watch runs
  registrar_.stop_pins();
  const uint64_t calls = registrar_.pin_calls();
  std::atomic<uint64_t> number{0};
  Threads threads;
  threads.start([&] { number = use(4); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  const uint64_t spoiled = registrar_.next_serial() - 1;
  renew(4);
  registrar_.resume_pins();
  threads.join();
  EXPECT_EQ(registrar_.pin_calls(), calls + 2);
  EXPECT_GT(number, spoiled);
  EXPECT_EQ(stats_of(domain_).retries, 1u);
  EXPECT_EQ(use(4), number);
}

TEST_P(PinCacheWatch, RemovalDuringARegistrationIsNotKept) {
  use(20);
  registrar_.stop_pins();
  std::atomic<uint64_t> number{0};
  Threads threads;
  threads.start([&] { number = use(4); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  remove(4);
  registrar_.resume_pins();
  threads.join();
  EXPECT_FALSE(is_cached(4));
  EXPECT_GT(use(4), number);
}

// ---- what is not kept ----

TEST_P(PinCacheWatch, FilesAndSharedMemoryArePinnedWhileHeld) {
  const MemoryFile file(4);
  map_file(4, file, MAP_SHARED);
  map_file(6, file, MAP_PRIVATE);
  ASSERT_NE(mmap(arena_.page(8), kPage, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  for (const size_t page : {4u, 6u, 8u}) {
    SCOPED_TRACE("page " + std::to_string(page));
    EXPECT_EQ(coverage(page), HYDRANT_COVERAGE_NONE);
    const hydrant_pin_t held = pin(page);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(registrar_.live(), 1u);
    EXPECT_EQ(check_hold(registrar_, held, arena_.addr(page), kPage, HYDRANT_LOCAL_WRITE), "");
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    EXPECT_EQ(registrar_.live(), 0u) << "deregistered by the release";
    EXPECT_FALSE(is_cached(page));
    EXPECT_NE(use(page), use(page));
  }
}

TEST_P(PinCacheWatch, VouchedMemoryIsKeptUntilUnvouchedOrFilesChange) {
  const MemoryFile file(4);
  map_file(4, file);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(4), kPage), GASNET_OK);
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_VOUCHED);
  const uint64_t first = use(4);
  EXPECT_EQ(use(4), first);
  the_monitor().files_changed();
  const uint64_t second = use(4);
  EXPECT_GT(second, first);
  EXPECT_EQ(use(4), second);
  const uint64_t other = use(20);
  the_monitor().files_changed();
  EXPECT_EQ(use(20), other) << "ordinary memory has nothing to do with files";
  use(4);
  ASSERT_EQ(hydrant_unvouch(domain_, arena_.page(4), kPage), GASNET_OK);
  EXPECT_FALSE(is_cached(4));
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_NONE);
}

TEST_P(PinCacheWatch, ArenaMemoryIsCachedUntilItsOwnerInvalidates) {
  const MemoryFile file(4);
  map_file(4, file);
  ASSERT_EQ(the_monitor().add_arena(arena_.addr(4), kPage), 0);
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_ARENA);
  const uint64_t first = use(4);
  EXPECT_EQ(use(4), first);
  EXPECT_NE(the_monitor().pinned(arena_.addr(4), 1), 0);
  the_monitor().invalidate(arena_.addr(4), kPage);
  const uint64_t second = use(4);
  EXPECT_GT(second, first);
  the_monitor().drop_arena(arena_.addr(4), kPage);
  EXPECT_FALSE(is_cached(4));
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_NONE);
  use(4);
}

// ---- other ways to pin ----

TEST_P(PinCacheWatch, TryAndPartialPinsFindCheckedMemory) {
  EXPECT_EQ(try_pin(4).region, nullptr);
  const uint64_t number = use(4);
  const hydrant_pin_t found = try_pin(4);
  ASSERT_NE(found.region, nullptr);
  EXPECT_EQ(serial(found), number);
  EXPECT_EQ(hydrant_release(found), GASNET_OK);
  const hydrant_pin_t partial = hydrant_partial_pin(domain_, arena_.page(2), 6 * kPage, 0);
  ASSERT_NE(partial.region, nullptr);
  EXPECT_EQ(partial.region->addr, arena_.addr(4));
  EXPECT_EQ(hydrant_release(partial), GASNET_OK);
  renew(4);
  EXPECT_EQ(try_pin(4).region, nullptr);
  EXPECT_EQ(hydrant_partial_pin(domain_, arena_.page(2), 6 * kPage, 0).region, nullptr);
}

TEST_P(PinCacheWatch, PinManyHitsAndMisses) {
  const uint64_t known = use(2);
  const hydrant_range_t ranges[3] = {
      {arena_.addr(2), kPage}, {arena_.addr(10), kPage}, {arena_.addr(14), kPage}};
  hydrant_pin_t pins[3] = {};
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(hydrant_pin_many(domain_, ranges, 3, HYDRANT_LOCAL_WRITE, pins), GASNET_OK);
    EXPECT_EQ(serial(pins[0]), known);
    EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_OK);
  }
  EXPECT_EQ(registrar_.pin_calls(), 3u);
  renew(10);
  ASSERT_EQ(hydrant_pin_many(domain_, ranges, 3, HYDRANT_LOCAL_WRITE, pins), GASNET_OK);
  EXPECT_EQ(registrar_.pin_calls(), 4u);
  EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_OK);
}

TEST_P(PinCacheWatch, DeferredAndWaitingPinsHit) {
  const uint64_t number = use(4);
  hydrant_pin_t got{};
  const auto done = [](void* out, hydrant_pin_t p) { *static_cast<hydrant_pin_t*>(out) = p; };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE, done, &got),
            GASNET_OK);
  ASSERT_NE(got.region, nullptr);
  EXPECT_EQ(serial(got), number);
  EXPECT_EQ(hydrant_release(got), GASNET_OK);
  got = hydrant_pin_wait(domain_, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE,
                         patient_ns(1'000'000'000));
  ASSERT_NE(got.region, nullptr);
  EXPECT_EQ(serial(got), number);
  EXPECT_EQ(hydrant_release(got), GASNET_OK);
}

TEST_P(PinCacheWatch, AsyncRegistrationOfReleasedMemoryIsRepeated) {
  destroy();
  registrar_.offer_async();
  create(watching(GetParam()));
  hydrant_pin_t got{};
  const auto done = [](void* out, hydrant_pin_t p) { *static_cast<hydrant_pin_t*>(out) = p; };
  ASSERT_EQ(hydrant_pin_async(domain_, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE, done, &got),
            GASNET_OK);
  EXPECT_EQ(got.region, nullptr);
  renew(4);
  the_monitor().settle();
  ASSERT_TRUE(registrar_.complete_async(GASNET_OK));
  const uint64_t spoiled = registrar_.next_serial() - 1;
  ASSERT_TRUE(wait_until([&] {
    (void)registrar_.complete_async(GASNET_OK);
    (void)hydrant_poll(domain_);
    return got.region != nullptr;
  }));
  EXPECT_GT(serial(got), spoiled);
  EXPECT_EQ(hydrant_release(got), GASNET_OK);
}

TEST_P(PinCacheWatch, EvictedCheckedMemoryIsPinnedAgainAndStaysChecked) {
  destroy();
  hydrant_domain_options_t options = watching(GetParam());
  options.budget_bytes = 4 * kPage;
  create(options);
  for (int round = 0; round < 3; ++round) {
    for (size_t page = 0; page < 20; page += 2) {
      const uint64_t number = use(page);
      EXPECT_EQ(use(page), number);
      renew(page);
      EXPECT_GT(use(page), number);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheWatch,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE),
                         [](const auto& mode) {
                           return mode.param == HYDRANT_MODE_PAGE ? "Page" : "Region";
                         });

}  // namespace
}  // namespace hydrant::testing
