// The number of readings, driven by one thread: which waits are over at which number.
#include "firehose/watch/reading_sequence.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hydrant::testing {
namespace {

// A wait for the next reading, and how many readings had begun and ended when it began.
struct ReadingWait {
  uint64_t number;
  int begun;
};

TEST(ReadingSequence, WaitsEndWithTheFirstReadingThatBeganLater) {
  ReadingSequence sequence;
  std::vector<ReadingWait> waits;
  int begun = 0;
  int ended = 0;
  Random random(test_seed());
  for (int step = 0; step < 2000; ++step) {
    if (random.below(3) == 0) {
      waits.push_back({sequence.next_reading_done(), begun});
    } else if (begun == ended) {
      sequence.begin();
      ++begun;
    } else {
      sequence.end();
      ++ended;
    }
    ASSERT_EQ(*sequence.number() % 2, begun == ended ? 0u : 1u);
    ASSERT_EQ(sequence.settle(0), begun == ended) << "without time to wait";
    for (const ReadingWait& wait : waits)
      ASSERT_EQ(sequence.has_reached(wait.number), ended > wait.begun) << step;
    if (waits.size() > 16) waits.erase(waits.begin());
  }
}

TEST(ReadingSequence, AForkEndsAReadingUnderWay) {
  ReadingSequence sequence;
  sequence.reset_in_child();
  EXPECT_EQ(*sequence.number(), 0u);
  sequence.begin();
  EXPECT_FALSE(sequence.settle(0));
  sequence.reset_in_child();
  EXPECT_EQ(*sequence.number(), 2u);
  EXPECT_TRUE(sequence.settle(0));
}

}  // namespace
}  // namespace hydrant::testing
