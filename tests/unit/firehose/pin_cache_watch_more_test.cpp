// Watching beside everything else a domain does: neighbours, other ways to watch, knobs, children, ends.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

using PinCacheWatchNeighbours = WatchedPinCache;

// ---- neighbours: a region that grows may reach into what is not watched ----

TEST_F(PinCacheWatchNeighbours, UnwatchedNeighbourDoesNotSpoilAPin) {
  create(watching());
  const MemoryFile file(4);
  map_file(6, file, MAP_SHARED, 2);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(6), 2 * kPage), GASNET_OK);
  use(6, 2);
  ASSERT_TRUE(is_cached(6, 2));
  const uint64_t number = use(4, 2);
  EXPECT_EQ(use(4, 2), number) << "kept, though what it touches is not watched";
  EXPECT_TRUE(is_cached(6, 2));
}

TEST_F(PinCacheWatchNeighbours, RefusedNeighbourDoesNotSpoilAPin) {
  create(watching());
  use(6, 2, HYDRANT_LOCAL_READ);
  ASSERT_EQ(mprotect(arena_.page(6), 2 * kPage, PROT_READ), 0);
  registrar_.refuse(arena_.addr(6), 2 * kPage, HYDRANT_LOCAL_WRITE);
  const uint64_t number = use(4, 2, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(use(4, 2, HYDRANT_LOCAL_WRITE), number);
}

TEST_F(PinCacheWatchNeighbours, GuardPagesAndHolesNearbyAreHarmless) {
  create(watching());
  ASSERT_EQ(mprotect(arena_.page(3), kPage, PROT_NONE), 0);
  const uint64_t number = use(4, 2);
  unmap(6);  // so briefly that no other thread maps the range
  EXPECT_EQ(coverage(6), HYDRANT_COVERAGE_NONE);
  EXPECT_EQ(coverage(4, 3), HYDRANT_COVERAGE_NONE);
  EXPECT_EQ(coverage(4, 2), HYDRANT_COVERAGE_CHECKED);
  map(6);
  EXPECT_EQ(use(4, 2), number);
}

TEST_F(PinCacheWatchNeighbours, GrownRegionIsForgottenWhenAnyPartIsReleased) {
  create(watching());
  use(4, 2);
  use(6, 2);
  const uint64_t grown = use(4, 4);
  EXPECT_EQ(use(4, 4), grown);
  renew(7);
  EXPECT_FALSE(is_cached(4));
  EXPECT_GT(use(4, 4), grown);
}

// Vouching covers the page itself only: a neighbour that is joined to it is watched and looked up as usual.
TEST_F(PinCacheWatchNeighbours, NeighbourOfVouchedMemoryIsNotVouchedFor) {
  create(watching());
  use(4, 2);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(6), 2 * kPage), GASNET_OK);
  use(6, 2);
  the_monitor().files_changed();
  // Pages 4 and 5 are of no file, joined with the others or not.
  EXPECT_TRUE(is_cached(4, 2));
}

// A hit on vouched memory does not query the kernel, however much memory is cached beside it.
TEST_F(PinCacheWatchNeighbours, VouchedMemoryIsHitUncheckedWhateverItsNeighbours) {
  if (the_monitor().cover(arena_.addr(4), kPage, 0) == HYDRANT_COVER_WATCHED)
    GTEST_SKIP() << "with the hooks no hit queries the kernel";
  create(watching());
  use(4, 2);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(6), 2 * kPage), GASNET_OK);
  use(6, 2);
  use(6, 2);
  const hydrant_stats_t before = stats_of(domain_);
  use(6, 2);
  const hydrant_stats_t after = stats_of(domain_);
  EXPECT_EQ(after.refills, before.refills);
  EXPECT_EQ(after.hits, before.hits + 1);
}

// ---- other ways to watch ----

TEST_F(PinCacheWatchNeighbours, WatchNoneKeepsArenasAndVouchedMemoryOnly) {
  hydrant_domain_options_t options = watching();
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  EXPECT_NE(use(4), use(4));
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_NONE);
  ASSERT_EQ(the_monitor().add_arena(arena_.addr(8), 4 * kPage), 0);
  EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_ARENA);
  const uint64_t number = use(9);
  EXPECT_EQ(use(9), number);
  EXPECT_NE(use(11, 2), use(11, 2)) << "half outside";
  the_monitor().drop_arena(arena_.addr(8), 4 * kPage);
  EXPECT_FALSE(is_cached(9));
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(20), kPage), GASNET_OK);
  const uint64_t vouched = use(20);
  EXPECT_EQ(use(20), vouched);
  EXPECT_EQ(coverage(20), HYDRANT_COVERAGE_VOUCHED);
}

TEST_F(PinCacheWatchNeighbours, VouchedMemoryNeedsNoMonitor) {
  hydrant_domain_options_t options = watching();
  options.watch = HYDRANT_WATCH_CLIENT;
  create(options);
  const uint64_t number = use(4);
  renew(4);
  the_monitor().invalidate(arena_.addr(4), kPage);
  EXPECT_EQ(use(4), number) << "the client invalidates";
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_CLIENT);
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(4), kPage), GASNET_OK);
  EXPECT_GT(use(4), number);
}

TEST_F(PinCacheWatchNeighbours, CoverageReportsErrors) {
  create(watching());
  uint32_t answer = 4711;
  EXPECT_EQ(hydrant_coverage(domain_, arena_.page(0), 0, &answer), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_coverage(domain_, arena_.page(0), kPage, nullptr), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_coverage(domain_, arena_.page(0), SIZE_MAX, &answer), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_coverage(0, arena_.page(0), kPage, &answer), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(answer, 4711u);
  const char* const names[] = {"none", "client", "vouched", "arena", "checked", "watched"};
  for (uint32_t i = 0; i < 6; ++i) EXPECT_STREQ(hydrant_coverage_name(i), names[i]);
  EXPECT_NE(hydrant_coverage_name(6), nullptr);
}

TEST_F(PinCacheWatchNeighbours, KnobDecidesIfTheProgramDoesNot) {
  struct Case {
    const char* value;
    uint32_t option, expected;
  };
  // The environment cannot promise that the program reports its releases.
  for (const Case& c : {Case{"client", HYDRANT_WATCH_DEFAULT, HYDRANT_COVERAGE_CHECKED},
                        Case{"none", HYDRANT_WATCH_DEFAULT, HYDRANT_COVERAGE_NONE},
                        Case{"client", HYDRANT_WATCH_NONE, HYDRANT_COVERAGE_NONE},
                        Case{"none", HYDRANT_WATCH_CLIENT, HYDRANT_COVERAGE_CLIENT}}) {
    EXPECT_EQ(run_in_child([&]() -> std::string {
                setenv("FIREHOSE_WATCH", c.value, 1);
                hydrant_domain_options_t options = watching();
                options.watch = c.option;
                create(options);
                const uint32_t got = coverage(4);
                return got == c.expected ? "" : hydrant_coverage_name(got);
              }),
              "")
        << c.value << " " << c.option;
  }
}

// As daemons do: close all, and open something that stays idle under the userfaultfd's number.
TEST_F(PinCacheWatchNeighbours, ReleasesGoOnWhenAllDescriptorsAreClosed) {
  EXPECT_EQ(run_in_child([&]() -> std::string {
              std::vector<int> others;
              for (int fd = 0; fd < 256; ++fd) {
                if (fcntl(fd, F_GETFD) < 0) others.push_back(fd);
              }
              create(watching());
              use(4);
              for (const int fd : others) close(fd);
              std::vector<std::array<int, 2>> pipes(16);
              for (auto& ends : pipes) {
                if (pipe(ends.data()) != 0) return "no pipe";
              }
              renew(4);  // hangs if the reader does not notice the closed descriptor
              destroy();
              for (const auto& ends : pipes) {
                if (fcntl(ends[0], F_GETFD) < 0 || fcntl(ends[1], F_GETFD) < 0)
                  return "the cache closed what is not its own";
              }
              return "";
            }),
            "");
}

// The program's own userfaultfd under the number would reply to every query as the cache's does.
TEST_F(PinCacheWatchNeighbours, NoPinIsStaleUnderTheProgramsUserfaultfds) {
  for (int trial = 0; trial < 5; ++trial) {
    EXPECT_EQ(run_in_child([&]() -> std::string {
                const OwnDescriptors own;
                create(watching());
                const uint64_t number = use(4);
                const std::vector<int> numbers = own.close_others();
                (void)OwnDescriptors::fill(numbers, [] {
                  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
                  uffdio_api api{};
                  api.api = UFFD_API;
                  return fd >= 0 && ioctl(static_cast<int>(fd), UFFDIO_API, &api) == 0
                             ? static_cast<int>(fd)
                             : -1;
                });
                renew(4);
                if (use(4) == number) return "a stale pin";
                destroy();
                for (const int fd : numbers) {
                  if (!is_open(fd)) return "the cache closed what is not its own";
                }
                return "";
              }),
              "");
  }
}

TEST_F(PinCacheWatchNeighbours, DefaultIsToWatch) {
  unsetenv("FIREHOSE_WATCH");
  hydrant_domain_options_t options = watching();
  options.watch = HYDRANT_WATCH_DEFAULT;
  create(options);
  EXPECT_EQ(coverage(4), HYDRANT_COVERAGE_CHECKED);
}

// ---- creation and end of the domain ----

// A domain subscribes to the monitor before its creation completes: a failed creation must unsubscribe.
TEST_F(PinCacheWatchNeighbours, FailedDomainReceivesNoEvents) {
  const hydrant_range_t twice[2] = {{arena_.addr(4), 2 * kPage}, {arena_.addr(5), 2 * kPage}};
  const std::array<uint64_t, 2> numbers = {1, 2};
  const void* const keys[2] = {&numbers[0], &numbers[1]};
  hydrant_domain_options_t options = watching();
  options.prepinned = twice;
  options.prepinned_count = 2;
  options.prepinned_keys = keys;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(hydrant_domain_create(&options, &domain_), GASNET_ERR_BAD_ARG);
    the_monitor().invalidate(arena_.addr(0), kPage);
  }
  // The domain keeps no subscription either: all 64 are free.
  size_t clients = 0;
  const hydrant_monitor_client_t client = {nullptr, [](void*, uintptr_t, size_t) {}, [](void*) {},
                                           [](void*, uintptr_t, size_t) { return 0; }};
  std::vector<int> numbers_given;
  for (int n = the_monitor().subscribe(&client); n >= 0; n = the_monitor().subscribe(&client)) {
    numbers_given.push_back(n);
    ++clients;
  }
  for (const int n : numbers_given) the_monitor().unsubscribe(n);
  EXPECT_EQ(clients, 64u);
  domain_ = 0;
}

TEST_F(PinCacheWatchNeighbours, SixtyFourDomainsAllForget) {
  std::vector<hydrant_domain_t> domains(64);
  const hydrant_domain_options_t options = watching();
  for (hydrant_domain_t& domain : domains) {
    ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
    const hydrant_pin_t held = hydrant_pin(domain, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE);
    ASSERT_EQ(hydrant_release(held), GASNET_OK);
  }
  EXPECT_EQ(registrar_.pin_calls(), 64u);
  renew(4);
  for (const hydrant_domain_t domain : domains) {
    EXPECT_EQ(hydrant_try_pin(domain, arena_.page(4), kPage, 0).region, nullptr);
    EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
  EXPECT_EQ(registrar_.live(), 0u);
}

TEST_F(PinCacheWatchNeighbours, DomainsAreRecreatedWhileMemoryIsReleased) {
  std::atomic<bool> stop{false};
  MappedMemory others(32);
  others.replace(0, 32);
  Threads threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.start([&, t] {
      while (!stop) {
        // In one call, so that no other thread maps memory in between.
        others.replace(16 * t, 8);
        (void)the_monitor().cover(others.addr(16 * t), 8 * kPage, 0);
        (void)madvise(others.page(16 * t), kPage, MADV_DONTNEED);
      }
    });
  }
  const hydrant_domain_options_t options = watching();
  for (int i = 0; i < 100; ++i) {
    hydrant_domain_t domain = 0;
    ASSERT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
    const hydrant_pin_t held = hydrant_pin(domain, arena_.page(4), kPage, HYDRANT_LOCAL_WRITE);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
    ASSERT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  }
  stop = true;
  threads.join();
}

}  // namespace
}  // namespace hydrant::testing
