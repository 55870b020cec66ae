#include "firehose/cache/coherence/watch_link.hpp"

#include <gtest/gtest.h>

#include <cstddef>

namespace hydrant {
namespace {

// The monitor of the test, and records of its calls.
struct Told {
  int quiet = 0;  // result of quiet()
  uint32_t cover = HYDRANT_COVER_WATCHED, cover_alone = HYDRANT_COVER_WATCHED;
  int asked_quiet = 0, pinned = 0, synced = 0, ended = 0, started = 0, asked_unmapped = 0,
      asked_wanted = 0;
  uint32_t flags = 0;  // of the last cover()
  int subscription = 3;
  uint32_t checked = 0;
} g_told;

constexpr MemoryRange kRange{uintptr_t{1} << 40, 4096};

hydrant_monitor_t make_monitor() {
  hydrant_monitor_t m{};
  m.size = sizeof m;
  m.subscribe = [](const hydrant_monitor_client_t*) { return g_told.subscription; };
  m.unsubscribe = [](int) { ++g_told.ended; };
  m.quiet = [](uint64_t) {
    ++g_told.asked_quiet;
    return g_told.quiet;
  };
  m.quiet_range = [](uintptr_t addr, size_t len, uint64_t) {
    EXPECT_EQ((MemoryRange{addr, len}), kRange);
    ++g_told.asked_quiet;
    return g_told.quiet;
  };
  m.cover = [](uintptr_t, size_t len, uint32_t flags) {
    g_told.flags = flags;
    return len == kRange.len ? g_told.cover_alone : g_told.cover;
  };
  m.note_pinned = [](uintptr_t, size_t) { ++g_told.pinned; };
  m.start = [] {
    ++g_told.started;
    return -1;  // an error that domains have to tolerate
  };
  m.sync = [] { ++g_told.synced; };
  m.set_end_free_hits = [](int, void (*)(void*)) { return 0; };
  m.set_unmapped = [](int, void (*)(void*, uintptr_t, size_t)) {
    ++g_told.asked_unmapped;
    return 0;
  };
  m.set_wanted = [](int, void (*)(void*)) {
    ++g_told.asked_wanted;
    return 0;
  };
  m.checked = &g_told.checked;
  return m;
}

class WatchLinkTest : public ::testing::Test {
 protected:
  WatchLinkTest() {
    g_told = {};
    config_.watch = HYDRANT_WATCH_AUTO;
  }
  Status start() {
    return link_.start(&monitor_, {},
                       {[](void*) {}, [](void*, uintptr_t, size_t) {}, [](void*) {}});
  }
  DomainConfig config_;
  HitChecks checks_;
  WatchLink link_{config_, checks_};
  hydrant_monitor_t monitor_ = make_monitor();
  PinRequest request_{kRange, kRange, Access::kLocalRead, nullptr, MissPolicy::kRegister};
};

TEST_F(WatchLinkTest, FullMonitorLeavesTheDomainUnwatched) {
  g_told.subscription = -1;
  EXPECT_EQ(start(), Status::kResource);
  EXPECT_FALSE(link_.is_watched());
  link_.stop();
  EXPECT_EQ(g_told.ended, 0);
}

TEST_F(WatchLinkTest, SubscribesToUnmappedMemory) {
  ASSERT_EQ(start(), Status::kOk);
  EXPECT_EQ(g_told.asked_unmapped, 1);
  EXPECT_EQ(g_told.asked_wanted, 1);
  monitor_.size = offsetof(hydrant_monitor_t, set_unmapped);
  ASSERT_EQ(start(), Status::kOk);
  EXPECT_EQ(g_told.asked_unmapped, 1) << "an older monitor";
  EXPECT_EQ(g_told.asked_wanted, 1) << "the same";
}

TEST_F(WatchLinkTest, QuietIsQueriedOncePerRequest) {
  ASSERT_EQ(start(), Status::kOk);
  EXPECT_TRUE(link_.wait_until_quiet(request_));
  EXPECT_TRUE(link_.wait_until_quiet(request_));
  EXPECT_EQ(g_told.asked_quiet, 1);
  PinRequest other = request_;
  other.quiet = false;
  g_told.quiet = -1;
  EXPECT_FALSE(link_.wait_until_quiet(other));
  EXPECT_TRUE(other.restless);
  EXPECT_FALSE(link_.wait_until_quiet(other));
  EXPECT_EQ(g_told.asked_quiet, 2);
}

TEST_F(WatchLinkTest, ExtensionMustBeWatchedAsWellAsTheRequest) {
  ASSERT_EQ(start(), Status::kOk);
  Plan plan;
  plan.range = {kRange.addr, 4 * kRange.len};
  EXPECT_TRUE(link_.cover(request_, &plan));
  EXPECT_EQ(g_told.pinned, 1);
  g_told.cover = HYDRANT_COVER_CHECKED;
  EXPECT_FALSE(link_.cover(request_, &plan));
  g_told.cover_alone = HYDRANT_COVER_CHECKED;
  EXPECT_TRUE(link_.cover(request_, &plan));
  g_told.cover = HYDRANT_COVER_NONE;
  EXPECT_FALSE(link_.cover(request_, &plan)) << "then the request alone";
  plan.range = kRange;
  g_told.cover_alone = HYDRANT_COVER_NONE;
  EXPECT_TRUE(link_.cover(request_, &plan)) << "for its holders alone";
  EXPECT_FALSE(link_.may_be_cached(plan));
  plan.vouched = true;
  EXPECT_TRUE(link_.may_be_cached(plan));
}

TEST_F(WatchLinkTest, UnmapReportsAreAwaitedForWatchedMemoryOnly) {
  ASSERT_EQ(start(), Status::kOk);
  Plan plan;
  plan.range = kRange;
  link_.set_unmap_reports(request_, plan);
  plan.cover = HYDRANT_COVER_ARENA;
  link_.set_unmap_reports(request_, plan);
  EXPECT_EQ(g_told.asked_quiet, 0);
  plan.cover = HYDRANT_COVER_WATCHED;
  link_.set_unmap_reports(request_, plan);
  EXPECT_EQ(g_told.asked_quiet, 1);
  request_.quiet = true;
  link_.set_unmap_reports(request_, plan);
  EXPECT_EQ(g_told.asked_quiet, 1);
}

TEST_F(WatchLinkTest, UnpinQueriesTheKernelOnlyWithCheckedHits) {
  link_.set_all_unmap_reports();
  const uint64_t sequence = 0;
  monitor_.sequence = &sequence;
  ASSERT_EQ(start(), Status::kOk);
  link_.set_all_unmap_reports();
  EXPECT_EQ(g_told.asked_quiet, 0);
  checks_.note_checked();
  link_.set_all_unmap_reports();
  EXPECT_EQ(g_told.asked_quiet, 1);
}

TEST_F(WatchLinkTest, WatchedMemoryIsCachedOnlyWithoutReleasesUnderWay) {
  ASSERT_EQ(start(), Status::kOk);
  Plan plan;
  plan.range = kRange;
  plan.cover = HYDRANT_COVER_WATCHED;
  EXPECT_TRUE(link_.may_be_cached(plan));
  g_told.quiet = -1;
  EXPECT_FALSE(link_.may_be_cached(plan));
  plan.cover = HYDRANT_COVER_ARENA;
  EXPECT_TRUE(link_.may_be_cached(plan)) << "the arena announces its releases itself";
}

TEST_F(WatchLinkTest, UnpinFirstMemoryIsCachedInKeptArenasOnly) {
  config_.unpin_before_release = true;
  ASSERT_EQ(start(), Status::kOk);
  EXPECT_EQ(g_told.started, 0) << "no report is waited for";
  g_told.cover_alone = HYDRANT_COVER_ARENA;
  Plan plan;
  plan.range = kRange;
  EXPECT_TRUE(link_.cover(request_, &plan));
  EXPECT_EQ(g_told.flags, HYDRANT_COVER_ONLY_ARENAS | HYDRANT_COVER_ONLY_KEPT_ARENAS);
  EXPECT_TRUE(link_.may_be_cached(plan));
  EXPECT_EQ(link_.coverage(kRange), HYDRANT_COVERAGE_ARENA);
  EXPECT_EQ(g_told.asked_quiet, 0);
  // A monitor of an earlier version does not know which arenas keep what is pinned.
  monitor_.size = offsetof(hydrant_monitor_t, add_kept_arena);
  EXPECT_TRUE(link_.cover(request_, &plan));
  EXPECT_FALSE(link_.may_be_cached(plan));
  EXPECT_EQ(link_.coverage(kRange), HYDRANT_COVERAGE_NONE);
}

TEST_F(WatchLinkTest, ClientWatchNeedsNoMonitor) {
  config_.watch = HYDRANT_WATCH_CLIENT;
  Plan plan;
  EXPECT_TRUE(link_.cover(request_, &plan));
  EXPECT_TRUE(link_.may_be_cached(plan));
  EXPECT_TRUE(link_.sync_invalidations(true));
  EXPECT_EQ(link_.coverage(kRange), HYDRANT_COVERAGE_CLIENT);
  link_.sync_new_memory();
  EXPECT_EQ(g_told.synced, 0);
}

}  // namespace
}  // namespace hydrant
