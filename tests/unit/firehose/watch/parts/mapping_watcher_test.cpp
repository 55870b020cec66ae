// Registrations of mappings against sets of pages.
#include "firehose/watch/mapping_watcher.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_mappings.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kMappable = 60;

class MappingWatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_userfault() = {};
    fake_mappings() = {};
    ASSERT_TRUE(watcher.open());
    const RangesLock lock(watched.mutex());
    ASSERT_TRUE(watched.map(lock) && stacks.map(lock));
  }
  void TearDown() override { fake_mappings() = {}; }
  bool is_watched(MemoryRange range) {
    const RangesLock lock(watched.mutex());
    watched.forget_after_loss(lock);
    return watched.ranges(lock).covers(range);
  }

  Userfault userfault;
  HookedCallsUnderWay calls;
  WatchedRanges watched;
  ThreadStacks stacks;
  MappingWatcher watcher{userfault, watched, stacks, calls};
};

TEST_F(MappingWatcherTest, RandomMappingsAgreeWithPages) {
  Random random(test_seed());
  for (int round = 0; round < 200; ++round) {
    fake_userfault() = {};
    fake_mappings() = {};
    watched.reset_in_child();
    std::vector<Mapping>& mappings = fake_mappings().all;
    for (size_t page = random.below(3); page < kMappable;) {
      const size_t n = 1 + random.below(6);
      const size_t kind = random.below(8);  // mostly of the kind that can be watched
      mappings.push_back({pages(page, n), kind > 1, kind == 0});
      if (random.below(12) == 0) fake_userfault().refused.insert(pages(page, 1).addr);
      page += n + random.below(4) / 3;
    }
    watcher.set_statics(pages(0, kMappable / 2));
    std::set<uintptr_t> registered;
    for (int step = 0; step < 20; ++step) {
      const size_t first = random.below(kMappable - 8);
      const MemoryRange asked = pages(first, 1 + random.below(8));
      bool is_expected = true;
      for (uintptr_t at = asked.addr; is_expected && at < asked.end();) {
        const auto found = std::find_if(
            mappings.begin(), mappings.end(),
            [at](const Mapping& each) { return each.range.addr <= at && at < each.range.end(); });
        is_expected = found != mappings.end();
        if (!is_expected) break;
        at = found->range.end();
        const bool is_static = found->file_private && pages(0, kMappable / 2).covers(found->range);
        if (is_static) continue;
        is_expected = found->anonymous_private && !fake_userfault().is_refused(found->range);
        for (uintptr_t page = found->range.addr; is_expected && page < at; page += kPage)
          registered.insert(page);
      }
      ASSERT_EQ(watcher.watch(asked), is_expected) << round << ", " << step;
      ASSERT_EQ(fake_userfault().registered, registered) << round << ", " << step;
      for (size_t i = 0; i < kMappable; ++i)
        ASSERT_EQ(is_watched(pages(i, 1)), registered.count(pages(i, 1).addr) != 0);
      const size_t before = fake_userfault().registrations;
      if (is_expected && is_watched(asked)) {
        ASSERT_TRUE(watcher.watch(asked));
        ASSERT_EQ(fake_userfault().registrations, before) << "the second time costs nothing";
      }
    }
  }
}

TEST_F(MappingWatcherTest, AMappingThatKeepsChangingIsNotWatched) {
  fake_mappings().all = {{pages(0, 4), true, false}};
  fake_mappings().looked_up = [this] { watched.drop(pages(50, 1)); };
  EXPECT_FALSE(watcher.watch(pages(1, 1)));
  EXPECT_FALSE(is_watched(pages(1, 1)));
  int changes = 3;
  fake_mappings().looked_up = [&] {
    if (changes-- > 0) watched.note_lost();
  };
  EXPECT_TRUE(watcher.watch(pages(1, 1)));
  EXPECT_TRUE(is_watched(pages(0, 4)));
}

// The mapping that was registered has been replaced by a smaller one.
TEST_F(MappingWatcherTest, OnlyWhatIsStillMappedIsEntered) {
  fake_mappings().all = {{pages(0, 4), true, false}};
  int lookups = 0;
  fake_mappings().looked_up = [&] {
    if (++lookups == 2) fake_mappings().all = {{pages(0, 2), true, false}};
  };
  EXPECT_TRUE(watcher.watch(pages(1, 1)));
  EXPECT_TRUE(is_watched(pages(0, 2)));
  EXPECT_FALSE(is_watched(pages(2, 1)));
}

TEST_F(MappingWatcherTest, LostRangesAreEnteredAgain) {
  fake_mappings().all = {
      {pages(0, 4), true, false}, {pages(4, 4), true, false}, {pages(10, 4), true, false}};
  ASSERT_TRUE(watcher.watch(pages(0, 8)));
  ASSERT_TRUE(watcher.watch(pages(10, 1)));
  watched.note_lost();
  ASSERT_FALSE(is_watched(pages(1, 1)));
  fake_userfault().refused.insert(pages(10, 1).addr);  // another userfaultfd has it now
  watcher.watch_again(pages(2, 10), UINT64_MAX);
  EXPECT_FALSE(is_watched(pages(1, 1)));
  EXPECT_TRUE(is_watched(pages(2, 6)));
  EXPECT_FALSE(is_watched(pages(10, 1)));
  // With the mutex held, as in a handler, the call gives up.
  watched.note_lost();
  std::optional<MutexLock> held;
  held.emplace(watcher.mutex());
  watcher.watch_again(pages(2, 10), UINT64_MAX);
  EXPECT_FALSE(is_watched(pages(2, 1)));
}

}  // namespace
}  // namespace hydrant::testing
