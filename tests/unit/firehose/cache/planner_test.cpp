#include "firehose/cache/plan/extension_limits.hpp"
#include "firehose/cache/plan/vouched_ranges.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <sys/mman.h>

namespace hydrant {
namespace {

using testing::at;
using testing::kPage;
using testing::Random;

class PlannerTest : public ::testing::Test {
 protected:
  static DomainConfig make_config() {
    DomainConfig config;
    config.budget_bytes = 1000 * kPage;
    config.max_regions = 100;
    config.max_region_bytes = 64 * kPage;
    config.merge_bytes = 16 * kPage;
    config.crowded_merge_bytes = 32 * kPage;
    return config;
  }
  static PinRequest request(MemoryRange range, Access need = Access::kLocalWrite) {
    return {range, range, need, nullptr, MissPolicy::kRegister};
  }
  Plan plan(const CacheLock& lock, PinRequest& request) {
    Plan plan;
    planner_.plan(lock, request, &plan);
    return plan;
  }
  Plan plan(const CacheLock& lock, MemoryRange range, Access need = Access::kLocalWrite) {
    PinRequest one = request(range, need);
    return plan(lock, one);
  }
  // Two regions that a request over their border may join if they are replaced.
  void crowd(const CacheLock& lock) {
    parts_.add_open(lock, at(0, 15));
    parts_.add_open(lock, at(15, 15));
    parts_.budget.take(lock, {969 * kPage, 1});
  }
  void evict(const CacheLock& lock, MemoryRange range) {
    parts_.evictor.working_set().note_evicted(lock, range, parts_.budget.in_force(lock));
  }
  DomainConfig config_ = make_config();
  testing::Parts parts_{128, {1000 * kPage, 100}};
  Planner planner_{{config_, parts_.store, parts_.tables, parts_.budget,
                    parts_.evictor.working_set(), parts_.retirement, parts_.extensions}};
};

TEST_F(PlannerTest, RequestAloneIsThePlan) {
  const CacheLock lock(parts_.mu);
  const Plan alone = plan(lock, at(4, 2));
  EXPECT_EQ(alone.range, at(4, 2));
  EXPECT_EQ(alone.access, Access::kLocalWrite);
}

TEST_F(PlannerTest, NeighboursOfLikeSizeAreMergedWithTheirRights) {
  const CacheLock lock(parts_.mu);
  parts_.add_open(lock, at(2, 2), Access::kRemoteRead);
  parts_.add_open(lock, at(6, 2));
  const Plan joined = plan(lock, at(4, 2));
  EXPECT_EQ(joined.range, at(2, 6));
  EXPECT_EQ(joined.access, Access::kLocalWrite | Access::kRemoteRead);
  PinRequest exact = request(at(4, 2));
  exact.exact = true;
  EXPECT_EQ(plan(lock, exact).range, at(4, 2));
}

TEST_F(PlannerTest, NoMergeThatWouldEvict) {
  const CacheLock lock(parts_.mu);
  parts_.add_open(lock, at(2, 2));
  parts_.budget.take(lock, {997 * kPage, 1});
  const Plan alone = plan(lock, at(4, 2));
  EXPECT_EQ(alone.range, at(4, 2));
  EXPECT_FALSE(alone.replaces);
}

TEST_F(PlannerTest, WithoutRoomANeighbourIsReplaced) {
  const CacheLock lock(parts_.mu);
  parts_.add_open(lock, at(2, 2));
  parts_.budget.take(lock, {996 * kPage, 1});
  const Plan joined = plan(lock, at(3, 3));
  EXPECT_EQ(joined.range, at(2, 4));
  EXPECT_TRUE(joined.replaces);
}

TEST_F(PlannerTest, RegionThatReplacesIsLongerWhileAllMemoryInUseFits) {
  const CacheLock lock(parts_.mu);
  crowd(lock);
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30)) << "merge_bytes are 16 pages";
  evict(lock, at(500, 907));
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30)) << "15/16 of the budget";
  evict(lock, at(1500, 1));
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(14, 2));
}

TEST_F(PlannerTest, RegionThatReplacesTakesHalfOfTheBudgetAtMost) {
  const CacheLock lock(parts_.mu);
  parts_.budget.set_in_force(lock, 56 * kPage);
  parts_.add_open(lock, at(0, 15));
  parts_.add_open(lock, at(15, 15));
  parts_.budget.take(lock, {26 * kPage, 1});
  EXPECT_FALSE(plan(lock, at(14, 2)).replaces) << "30 pages";
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(14, 2));
  parts_.budget.set_in_force(lock, 60 * kPage);
  parts_.budget.take(lock, {4 * kPage, 0});
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30));
}

TEST_F(PlannerTest, EvictedMemoryThatIsRegisteredAgainTakesNoPlaceInTheList) {
  const CacheLock lock(parts_.mu);
  crowd(lock);
  for (size_t i = 0; i < 65; ++i) evict(lock, at(i % 30));
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30));
  for (size_t i = 0; i < 65; ++i) evict(lock, at(500 + 2 * i));
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(14, 2)) << "more than can be remembered";
}

TEST_F(PlannerTest, ForgettingAllForgetsThatEvictionsWereForgotten) {
  const CacheLock lock(parts_.mu);
  crowd(lock);
  for (size_t i = 0; i < 65; ++i) evict(lock, at(500 + 2 * i));
  planner_.forget_all(lock);
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30));
}

TEST_F(PlannerTest, AfterAReplacementFailedNothingIsReplacedForAWhile) {
  const CacheLock lock(parts_.mu);
  crowd(lock);
  PinRequest one = request(at(14, 2));
  planner_.note_abandoned(lock, one, plan(lock, one), true);
  for (int i = 0; i < 1024; ++i) ASSERT_FALSE(plan(lock, at(14, 2)).replaces) << i;
  EXPECT_TRUE(plan(lock, at(14, 2)).replaces);
}

TEST_F(PlannerTest, NoMoreRegionsAreReplacedThanTheEvictorCanExamine) {
  config_.crowded_merge_bytes = config_.max_region_bytes = 200 * kPage;
  const CacheLock lock(parts_.mu);
  size_t count = 0;
  const auto add_up_to = [&](size_t end) {
    while (count < end) parts_.add_open(lock, at(count++, 2));
  };
  add_up_to(60);
  parts_.budget.take(lock, {880 * kPage, 1});
  EXPECT_EQ(plan(lock, at(60, 2)).range, at(0, 62));
  add_up_to(70);
  parts_.budget.release(lock, {20 * kPage, 0});
  EXPECT_FALSE(plan(lock, at(70, 2)).replaces);
  EXPECT_EQ(plan(lock, at(70, 2)).range, at(70, 2));
}

TEST_F(PlannerTest, EvictedMemoryThatIsReleasedIsNotInUse) {
  const CacheLock lock(parts_.mu);
  crowd(lock);
  evict(lock, at(500, 971));
  planner_.forget(lock, at(500, 971));
  EXPECT_EQ(plan(lock, at(14, 2)).range, at(0, 30));
}

TEST_F(PlannerTest, LongNeighbourIsMergedWhenItsBorderIsCrossedOften) {
  const CacheLock lock(parts_.mu);
  parts_.add_open(lock, at(0, 8));
  EXPECT_EQ(plan(lock, at(8, 1)).range, at(8, 1));
  EXPECT_EQ(plan(lock, at(8, 1)).range, at(0, 9)) << "a quarter of it by now";
}

TEST_F(PlannerTest, PrepinnedRegionsAreNotMerged) {
  const CacheLock lock(parts_.mu);
  const RegionIndex r = parts_.add_open(lock, at(2, 2));
  parts_.store.infos(lock)[r].prepinned = true;
  EXPECT_EQ(plan(lock, at(4, 2)).range, at(4, 2));
}

TEST_F(PlannerTest, EagerRightsAreLeftOutWhereTheyWereRefused) {
  config_.eager = Access::kAll;
  const CacheLock lock(parts_.mu);
  EXPECT_EQ(plan(lock, at(4)).access, Access::kAll);
  planner_.note_refused(lock, at(4), Access::kAll);
  EXPECT_EQ(plan(lock, at(4)).access, Access::kLocalWrite);
  EXPECT_TRUE(planner_.is_refused(lock, at(3, 4), Access::kAll));
  EXPECT_FALSE(planner_.is_refused(lock, at(3, 4), Access::kLocalWrite));
  planner_.forget(lock, at(4));
  EXPECT_EQ(plan(lock, at(4)).access, Access::kAll);
}

TEST_F(PlannerTest, StreamExtensionEndsAtARegisteredRegion) {
  config_.stream_bytes = 32 * kPage;
  const CacheLock lock(parts_.mu);
  parts_.add_open(lock, at(7, 20));
  for (size_t page = 0; page < 4; ++page) {
    PinRequest one = request(at(page));
    const Plan next = plan(lock, one);
    planner_.note_claimed(lock, one, next);
  }
  PinRequest last = request(at(4));
  const Plan next = plan(lock, last);
  EXPECT_TRUE(next.stream);
  EXPECT_LE(next.range.end(), at(7).addr);
  EXPECT_TRUE(Planner::is_beyond_need(last, next));
}

// Random requests among random regions: each plan covers its request and keeps the limits.
TEST_F(PlannerTest, RandomPlansCoverTheirRequestsWithinTheLimits) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    testing::Parts parts(256, {(50 + random.below(950)) * kPage, 200});
    DomainConfig config = make_config();
    config.stream_bytes = random.below(2) * 32 * kPage;
    Planner planner({config, parts.store, parts.tables, parts.budget, parts.evictor.working_set(),
                     parts.retirement, parts.extensions});
    const CacheLock lock(parts.mu);
    size_t regions = 0;
    for (int step = 0; step < 300; ++step) {
      const MemoryRange range = at(random.below(200), 1 + random.below(12));
      if (regions < 40 && random.below(3) == 0 && !parts.tables.any_overlap(lock, range)) {
        parts.add_open(lock, range);
        ++regions;
        continue;
      }
      PinRequest one = request(range, static_cast<Access>(random.below(16)));
      Plan next;
      planner.plan(lock, one, &next);
      ASSERT_TRUE(next.range.covers(one.pages)) << "seed " << seed;
      ASSERT_TRUE(includes(next.access, one.need)) << "seed " << seed;
      if (next.range != one.pages) {
        const size_t half = parts.budget.in_force(lock) / 2;
        ASSERT_LE(next.range.len, next.stream     ? config.stream_bytes
                                  : next.replaces ? std::min(config.crowded_merge_bytes, half)
                                                  : config.merge_bytes);
        if (!next.stream) {
          const uint64_t replaced = next.replaces ? planner.replaced(lock, next).bytes : 0;
          ASSERT_TRUE(parts.budget.has_room(lock, next.range.len - replaced));
        }
      }
      planner.note_claimed(lock, one, next);
    }
  }
}

TEST(ExtensionLimits, WideningNeedsAChargeForTheWholeBlock) {
  DomainConfig config;
  config.stream_bytes = 1 << 20;
  config.max_region_bytes = SIZE_MAX;
  RegistrarTraits traits;
  traits.block_bytes = 16 * kPage;
  Mutex mu;
  VouchedRanges vouched;
  const ExtensionLimits limits(config, traits, mu, vouched);
  PinRequest request{at(3, 2), at(3, 2), Access::kLocalRead, nullptr, MissPolicy::kRegister};
  Plan plan;
  plan.range = request.pages;
  plan.charge = 2 * kPage;
  limits.widen_to_huge_pages(request, &plan);
  EXPECT_EQ(plan.range, at(3, 2)) << "charged by the page";
  plan.charge = 16 * kPage;
  limits.widen_to_huge_pages(request, &plan);
  EXPECT_EQ(plan.range, at(0, 16));
  EXPECT_TRUE(plan.huge_pages);
  plan.range = request.pages;
  request.exact = true;
  limits.widen_to_huge_pages(request, &plan);
  EXPECT_EQ(plan.range, at(3, 2));
}

TEST(ExtensionLimits, VouchedMemoryIsExtendedOverResidentPagesOnly) {
  DomainConfig config;
  RegistrarTraits traits;
  Mutex mu;
  VouchedRanges vouched;
  ASSERT_TRUE(vouched.map());
  const ExtensionLimits limits(config, traits, mu, vouched);
  void* memory =
      mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto base = reinterpret_cast<uintptr_t>(memory);
  static_cast<volatile char*>(memory)[3 * kPage] = 1;
  static_cast<volatile char*>(memory)[4 * kPage] = 1;
  const MemoryRange needed{base + 3 * kPage, kPage};
  const MemoryRange wanted{base, 8 * kPage};
  EXPECT_EQ(limits.without_untouched(needed, wanted), wanted);
  {
    const CacheLock lock(mu);
    ASSERT_TRUE(vouched.add(lock, wanted));
  }
  EXPECT_EQ(limits.without_untouched(needed, wanted), (MemoryRange{needed.addr, 2 * kPage}));
  munmap(memory, 8 * kPage);
}

// The set against one bit per page.
TEST(VouchedRangesModel, AgreeWithAPageMap) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    Mutex mu;
    const CacheLock lock(mu);
    VouchedRanges vouched;
    ASSERT_TRUE(vouched.map());
    std::vector<bool> pages(200, false);
    for (int step = 0; step < 500; ++step) {
      const size_t first = random.below(180);
      const size_t count = 1 + random.below(20);
      const bool on = random.below(2) == 0;
      ASSERT_TRUE(on ? vouched.add(lock, at(first, count))
                     : vouched.remove(lock, at(first, count)));
      for (size_t i = first; i < first + count; ++i) pages[i] = on;
      const size_t asked = random.below(190);
      const size_t length = 1 + random.below(10);
      bool covered = true;
      for (size_t i = asked; i < asked + length; ++i) covered = covered && pages[i];
      ASSERT_EQ(vouched.covers(lock, at(asked, length)), covered) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hydrant
