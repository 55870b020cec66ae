// Removals against a list of pages and calls: memory may be cached again when its removal is known to have
// ended.
#include "firehose/watch/removals_under_way.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_hooks.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace hydrant::testing {
namespace {

constexpr size_t kRemovable = 64;

class RemovalsUnderWayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const RangesLock lock(watched.mutex());
    ASSERT_TRUE(removals.map(lock));
    ASSERT_EQ(*newest, 1u);
    // The note of each call names the memory of all tests.
    for (hydrant_hooks_thread_t& each : fake.records) {
      each.tid = 0x7ffffff0;
      each.addr = kPlace;
      each.len = kRemovable * kPage;
    }
  }
  uint64_t remove(MemoryRange range, bool is_known = true) {
    const uint64_t number = is_known ? removals.next_number() : RemovedRanges::kCallerUnknown;
    const RangesLock lock(watched.mutex());
    removals.add(lock, range, number);
    return number;
  }
  void replace(MemoryRange range) {
    const RangesLock lock(watched.mutex());
    removals.replace(lock, range);
  }

  FakeHooks fake;
  HookedCallsUnderWay calls;
  WatchedRanges watched;
  DeferredChanges deferred;
  RemovalsUnderWay removals{watched, deferred, calls};
  const uint64_t* newest = removals.show_newest();
};

// Without the hooks only another mapping ends a removal.
TEST_F(RemovalsUnderWayTest, WithoutHooksRemovedMemoryAgreesWithPages) {
  std::array<bool, kRemovable> model{};
  Random random(test_seed());
  for (int step = 0; step < 3000; ++step) {
    const size_t page = random.below(kRemovable);
    const size_t n = 1 + random.below(std::min<size_t>(kRemovable - page, 5));
    const size_t kind = random.below(6);
    if (kind == 0) remove(pages(page, n), random.below(2) == 0);
    if (kind == 1) replace(pages(page, n));
    if (kind < 2) std::fill_n(&model[page], n, kind == 0);
    if (kind == 2) removals.forget_ended(pages(page, n));
    const auto first = std::find(&model[page], &model[page] + n, true);
    const bool is_removed = first != &model[page] + n;
    ASSERT_EQ(removals.under_way(pages(page, n)), is_removed) << step;
    const RangesLock lock(watched.mutex());
    const MemoryRange found = removals.first_in(lock, pages(page, n));
    ASSERT_EQ(found.len != 0, is_removed);
    if (is_removed) {
      ASSERT_EQ(found.addr, pages(static_cast<size_t>(first - model.data()), 1).addr);
    }
  }
}

// With the hooks a removal ends with the calls that had begun before it was read.
TEST_F(RemovalsUnderWayTest, WithHooksARemovalEndsWithTheCallsBeforeIt) {
  calls.set_hooks(&fake.hooks);
  std::array<uint64_t, kRemovable> model{};  // the number of the removal; 0: none
  Random random(test_seed());
  for (int step = 0; step < 5000; ++step) {
    const size_t page = random.below(kRemovable);
    hydrant_hooks_thread_t& thread = fake.records[random.below(4)];
    switch (random.below(5)) {
      case 0: model[page] = remove(pages(page, 1)); break;
      case 1: thread.entered = *newest; break;
      case 2: thread.entered = 0; break;
      case 3: ASSERT_EQ(removals.begin_grace_period(), *newest); break;
      default: replace(pages(page, 1));  // other memory: the caller may still be at work
    }
    uint64_t oldest = UINT64_MAX;
    for (const hydrant_hooks_thread_t& each : fake.records) {
      if (each.entered != 0) oldest = std::min(oldest, each.entered);
    }
    const bool is_under_way = model[page] != 0 && oldest < model[page];
    if (random.below(3) == 0) removals.forget_ended(pages(page, 1));
    if (random.below(2) == 0) continue;
    ASSERT_EQ(removals.under_way(pages(page, 1)), is_under_way) << step;
  }
}

TEST_F(RemovalsUnderWayTest, RemovalsOfUnknownCallersEndWithAnotherMapping) {
  calls.set_hooks(&fake.hooks);
  remove(pages(3, 1), false);
  removals.forget_ended(pages(0, 8));
  EXPECT_TRUE(removals.under_way(pages(3, 1)));
  replace(pages(3, 1));
  EXPECT_FALSE(removals.under_way(pages(3, 1)));
}

TEST_F(RemovalsUnderWayTest, AllMemoryIsInDoubtWhileTheReaderIsLate) {
  EXPECT_FALSE(removals.under_way(pages(0, 1)));
  deferred.push({MemoryChange::Kind::kRemoved, pages(5, 1), {}}, 1);
  EXPECT_TRUE(removals.under_way(pages(0, 1)));
  deferred.clear();
  remove(pages(1, 1));
  removals.reset_in_child();
  EXPECT_FALSE(removals.under_way(pages(1, 1)));
}

}  // namespace
}  // namespace hydrant::testing
