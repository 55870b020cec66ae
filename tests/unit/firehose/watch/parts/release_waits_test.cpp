// Waits for releases in one thread: the kernel's reply whether a change is under way is a step of a
// simulation, in which calls return and the reader reads.
#include "firehose/watch/release_waits.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_hooks.hpp"
#include "tests/unit/firehose/watch/parts/fake_mappings.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"
#include "tests/unit/firehose/watch/parts/reading_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uint64_t kLongWaitNs = 60'000'000'000;

class ReleaseWaitsTest : public UnwatchingParts {
 protected:
  void SetUp() override {
    fake_userfault() = {};
    fake_mappings() = {};
    hydrant_monitor_client_t client{};
    client.context = this;
    client.forget = [](void* self, uintptr_t addr, size_t len) { of(self).note({addr, len}); };
    ASSERT_EQ(clients->subscribe(client), 0);
    ASSERT_TRUE(map_tables());
    (void)removals.show_newest();
    ASSERT_TRUE(state.start_once(false, [](const char**) { return 0; }));
  }
  void TearDown() override { fake_userfault() = {}; }
  static ReleaseWaitsTest& of(void* self) { return *static_cast<ReleaseWaitsTest*>(self); }
  void note(MemoryRange range) { forgotten.push_back(range); }
  bool is_watched(MemoryRange range) {
    const RangesLock lock(watched.mutex());
    watched.forget_after_loss(lock);
    return watched.ranges(lock).covers(range);
  }

  std::vector<MemoryRange> forgotten;
  FakeHooks fake;
  ReleaseWaits waits{state,  userfault, sequence, calls,     raw,
                     stacks, removals,  watched,  unwatcher, *clients};
};

TEST_F(ReleaseWaitsTest, WithoutHooksAWaitEndsWithoutAChangeUnderWay) {
  EXPECT_TRUE(waits.quiet(pages(0, 1), 0));
  int left = 5;
  fake_userfault().change_under_way = [&] { return --left > 0; };
  EXPECT_TRUE(waits.quiet(pages(0, 1), kLongWaitNs));
  EXPECT_EQ(left, 0);
  fake_userfault().change_under_way = [] { return true; };
  EXPECT_FALSE(waits.quiet(pages(0, 1), 0));
  sequence.begin();
  fake_userfault().change_under_way = nullptr;
  EXPECT_FALSE(waits.quiet(pages(0, 1), 0)) << "the reader has not notified the caches";
  sequence.end();
  EXPECT_TRUE(waits.quiet(pages(0, 1), 0));
}

// Threads release other memory without end: the wait is for the calls that may release the range, and then
// for a reading that begins after they have returned.
TEST_F(ReleaseWaitsTest, WithHooksAWaitEndsWithTheCallsThatWereUnderWay) {
  calls.set_hooks(&fake.hooks);
  const uint64_t* const newest = removals.show_newest();
  Random random(test_seed());
  for (int round = 0; round < 300; ++round) {
    const MemoryRange range = pages(random.below(20), 1 + random.below(4));
    std::vector<size_t> awaited;  // records of calls that may release the range
    for (uint32_t i = 0; i < 6; ++i) {
      hydrant_hooks_thread_t& record = fake.records[i];
      record.tid = 0x7ffffff0;
      const MemoryRange note = pages(random.below(24), 1 + random.below(4));
      record.addr = note.addr;
      record.len = note.len;
      record.entered = random.below(2) == 0 ? *newest : 0;
      if (record.entered != 0 && note.overlaps(range)) awaited.push_back(i);
    }
    // Each step is a query whether a change is under way, which always is.
    int steps = 0;
    uint64_t begun_after_return = 0;  // the sequence at which such a reading is done
    fake_userfault().change_under_way = [&] {
      ++steps;
      if (steps > 1 && !awaited.empty() && random.below(3) == 0) {
        fake.records[awaited.back()].entered = random.below(2) == 0 ? 0 : *newest;  // a later call
        awaited.pop_back();
      }
      const bool is_reading = *sequence.number() % 2 != 0;
      if (awaited.empty() && begun_after_return == 0 && steps > 1)
        begun_after_return = *sequence.number() + (is_reading ? 3 : 2);
      is_reading ? sequence.end() : sequence.begin();
      return steps < 500;
    };
    ASSERT_TRUE(waits.quiet(range, kLongWaitNs));
    ASSERT_LT(steps, 500) << "a wait for calls that began later";
    ASSERT_TRUE(awaited.empty()) << round;
    ASSERT_GE(*sequence.number() + 1, begun_after_return) << round;
    if (*sequence.number() % 2 != 0) sequence.end();
  }
}

TEST_F(ReleaseWaitsTest, NewMemoryIsForgottenInPlaceOfAWait) {
  {
    const RangesLock lock(watched.mutex());
    watched.add(lock, pages(0, 20));
  }
  waits.sync(pages(4, 2));
  EXPECT_TRUE(forgotten.empty()) << "nothing is under way";
  EXPECT_TRUE(is_watched(pages(4, 2)));
  fake_userfault().change_under_way = [] { return true; };
  waits.sync(pages(4, 2));
  EXPECT_EQ(forgotten, std::vector<MemoryRange>{pages(4, 2)});
  EXPECT_FALSE(is_watched(pages(4, 1)));
  EXPECT_TRUE(is_watched(pages(6, 4)));
  // Memory that begins inside a page extends an older mapping: that page is forgotten in any case.
  forgotten.clear();
  waits.sync({pages(8, 1).addr + 16, 2 * kPage});
  ASSERT_EQ(forgotten.size(), 2u);
  EXPECT_EQ(forgotten[0], pages(8, 1));
  EXPECT_EQ(forgotten[1], pages(9, 2));
  EXPECT_FALSE(is_watched(pages(8, 1)));
}

TEST_F(ReleaseWaitsTest, ChangesThatEndInTimeCostNoCacheAnything) {
  int left = 3;
  fake_userfault().change_under_way = [&] { return --left > 0; };
  waits.sync();
  waits.sync({});  // an invalid range: as all memory
  waits.settle();
  EXPECT_TRUE(forgotten.empty());
  state.end(userfault, "closed");  // no change is asked for without a reader
  fake_userfault().change_under_way = [] { return true; };
  waits.sync();
  waits.sync(pages(0, 1));
  EXPECT_TRUE(forgotten.empty());
}

}  // namespace
}  // namespace hydrant::testing
