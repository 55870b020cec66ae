// The set of watched ranges against a set of pages.
#include "firehose/watch/watched_ranges.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

namespace hydrant::testing {
namespace {

constexpr size_t kPages = 40;

// Which pages are registered, as far as is known.
struct PageModel {
  std::array<bool, kPages> watched{};
  bool is_outdated = false;
  uint64_t changes = 0;

  bool all(size_t page, size_t n) const {
    return std::all_of(&watched[page], &watched[page] + n, [](bool each) { return each; });
  }
  bool any(size_t page, size_t n) const {
    return std::any_of(&watched[page], &watched[page] + n, [](bool each) { return each; });
  }
  void set(size_t page, size_t n, bool to) { std::fill_n(&watched[page], n, to); }
  void forget_after_loss() {
    if (is_outdated) watched.fill(false);
    is_outdated = false;
  }
  void lose() {
    ++changes;
    is_outdated = true;
  }
};

class WatchedRangesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const RangesLock lock(ranges.mutex());
    ASSERT_TRUE(ranges.map(lock));
  }
  WatchedRanges ranges;
};

TEST_F(WatchedRangesTest, RandomOperationsAgreeWithPages) {
  PageModel model;
  Random random(test_seed());
  for (int step = 0; step < 5000; ++step) {
    const size_t page = random.below(kPages);
    const size_t n = 1 + random.below(std::min<size_t>(kPages - page, 6));
    const MemoryRange range = pages(page, n);
    switch (random.below(8)) {
      case 0:
      case 1: {
        const uint64_t before = random.below(4) != 0 ? ranges.changes() : ranges.changes() - 1;
        const RangesLock lock(ranges.mutex());
        model.forget_after_loss();
        ASSERT_EQ(ranges.is_current(lock, before), before == model.changes);
        if (before != model.changes) break;
        ranges.add(lock, range);
        model.set(page, n, true);
        break;
      }
      case 2: {
        const RangesLock lock(ranges.mutex());
        ranges.begin_change(lock);
        ranges.remove(lock, range);
        model.forget_after_loss();
        ++model.changes;
        model.set(page, n, false);
        break;
      }
      case 3:
        ranges.drop(range);
        model.forget_after_loss();
        ++model.changes;
        model.set(page, n, false);
        break;
      case 4: {
        const RangesLock lock(ranges.mutex());
        uint64_t changes = 0;
        const bool is_taken = ranges.take(lock, range, &changes);
        ASSERT_EQ(changes, ++model.changes);
        ASSERT_EQ(is_taken, model.all(page, n));
        if (!is_taken) break;
        model.set(page, n, false);
        if (random.below(2) == 0) {
          ranges.note_lost();
          model.lose();
        }
        ranges.put_back(lock, range, changes);
        if (model.changes == changes) model.set(page, n, true);
        break;
      }
      case 5:
        if (random.below(4) != 0) break;
        ranges.note_lost();
        model.lose();
        break;
      default: {
        const RangesLock lock(ranges.mutex());
        ranges.forget_after_loss(lock);
        model.forget_after_loss();
      }
    }
    const RangesLock lock(ranges.mutex());
    ASSERT_EQ(ranges.ranges(lock).covers(range), model.all(page, n)) << step;
    ASSERT_EQ(ranges.ranges(lock).overlaps(range), model.any(page, n)) << step;
    ASSERT_EQ(ranges.changes(), model.changes) << step;
  }
}

// As in a signal handler that interrupted the holder.
TEST_F(WatchedRangesTest, AllIsLostIfTheMutexIsHeld) {
  std::optional<RangesLock> held;
  const RangesLock& lock = held.emplace(ranges.mutex());
  ranges.add(lock, pages(0, 2));
  ranges.add(lock, pages(8, 2));
  const uint64_t before = ranges.changes();
  ranges.drop(pages(0, 1));
  EXPECT_EQ(ranges.changes(), before + 1);
  EXPECT_FALSE(ranges.is_current(lock, before)) << "the holder's queries may be outdated";
  EXPECT_EQ(ranges.ranges(lock).size(), 0u);
}

TEST_F(WatchedRangesTest, AFullSetIsClearedForTheNextRange) {
  const RangesLock lock(ranges.mutex());
  size_t added = 0;
  for (; added < 1'000'000 && ranges.ranges(lock).size() == added; ++added)
    ranges.add(lock, pages(2 * added, 1));
  EXPECT_LT(added, 1'000'000u);
  EXPECT_EQ(ranges.ranges(lock).size(), 1u);
  EXPECT_TRUE(ranges.ranges(lock).covers(pages(2 * (added - 1), 1)));
}

TEST_F(WatchedRangesTest, ChildOfAForkWatchesNothing) {
  {
    const RangesLock lock(ranges.mutex());
    ranges.add(lock, pages(0, 2));
  }
  ranges.note_lost();
  ranges.reset_in_child();
  const RangesLock lock(ranges.mutex());
  EXPECT_EQ(ranges.ranges(lock).size(), 0u);
  ranges.add(lock, pages(4, 1));
  ranges.forget_after_loss(lock);
  EXPECT_TRUE(ranges.ranges(lock).covers(pages(4, 1))) << "the loss was the parent's";
}

}  // namespace
}  // namespace hydrant::testing
