#include "firehose/base/machine/copy_pin_tuner.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using Way = CopyPinTuner::Way;
constexpr size_t kLen = 65536;

// The cost of a use in ns, by way.
struct Costs {
  uint64_t copy, if_pinned, pin;
  uint64_t of(Way way) const {
    return way == Way::kCopy ? copy : way == Way::kIfPinned ? if_pinned : pin;
  }
};

struct Taken {
  uint64_t ways[CopyPinTuner::kWays] = {};
  uint64_t timed = 0, ns = 0;
  uint64_t of(Way way) const { return ways[static_cast<size_t>(way)]; }
};

class CopyPinTunerTest : public ::testing::Test {
 protected:
  Taken go(size_t uses, Costs costs, size_t len = kLen) {
    Taken taken;
    for (size_t i = 0; i < uses; ++i) {
      const CopyPinTuner::Turn turn = tuner_.choose(len);
      const uint64_t ns = costs.of(turn.way);
      ++taken.ways[static_cast<size_t>(turn.way)];
      taken.timed += turn.timed ? 1 : 0;
      taken.ns += ns;
      if (turn.timed) tuner_.note(turn, len, ns);
    }
    return taken;
  }
  CopyPinTuner tuner_;
};

TEST_F(CopyPinTunerTest, EveryWayIsTriedEquallyAndTheFastestChosen) {
  const std::vector<std::pair<Costs, Way>> cases = {{{10000, 11000, 12000}, Way::kCopy},
                                                    {{11000, 10000, 12000}, Way::kIfPinned},
                                                    {{12000, 11000, 10000}, Way::kPin}};
  for (const auto& [costs, best] : cases) {
    tuner_ = {};
    const Taken first = go(24, costs);
    EXPECT_EQ(first.timed, 15u);
    for (const uint64_t each : first.ways) EXPECT_EQ(each, 8u);
    EXPECT_EQ(tuner_.best(kLen), best);
    const Taken next = go(32, costs);
    EXPECT_EQ(next.of(best), 32u);
    EXPECT_EQ(next.timed, 0u);
  }
}

// The first uses of a way after a pause are slower than it is.
TEST_F(CopyPinTunerTest, ColdUsesDoNotDecide) {
  Way last = Way::kCopy;
  int in_a_row = 0;
  for (int i = 0; i < 24; ++i) {
    const CopyPinTuner::Turn turn = tuner_.choose(kLen);
    in_a_row = turn.way == last ? in_a_row + 1 : 1;
    last = turn.way;
    const uint64_t cold = in_a_row <= 3 ? 10000 : 0;
    tuner_.note(turn, kLen, turn.way == Way::kPin ? 5000 + cold : 6000);
  }
  EXPECT_EQ(tuner_.best(kLen), Way::kPin);
}

TEST_F(CopyPinTunerTest, TrialsCostLittleInTheLongRun) {
  const Costs costs{700, 740, 1700};
  go(20000, costs);
  const Taken taken = go(200000, costs);
  EXPECT_LE(taken.ns, 200000 * 700 * 1.005);
  EXPECT_GT(taken.timed, 0u);
}

TEST_F(CopyPinTunerTest, FollowsCostsThatChange) {
  go(20000, {10000, 11000, 20000});
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
  go(20000, {10000, 9000, 5000});  // the memory is used again now
  EXPECT_EQ(tuner_.best(kLen), Way::kPin);
  go(20000, {10000, 11000, 20000});
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
}

TEST_F(CopyPinTunerTest, LengthsLearnByThemselves) {
  go(200, {1000, 1100, 3000}, 4096);
  go(200, {300000, 300100, 100000}, 1 << 20);
  EXPECT_EQ(tuner_.best(4096), Way::kCopy);
  EXPECT_EQ(tuner_.best(8191), Way::kCopy);
  EXPECT_EQ(tuner_.best(1 << 20), Way::kPin);
}

TEST_F(CopyPinTunerTest, LongerUsesOfAClassCountByTheByte) {
  // All uses that are assigned to the cheaper way are longer.
  for (int i = 0; i < 24; ++i) {
    const CopyPinTuner::Turn turn = tuner_.choose(kLen);
    const size_t len = turn.way == Way::kCopy ? 2 * kLen - 1 : kLen;
    tuner_.note(turn, len, turn.way == Way::kCopy ? 15000 : 10000);
  }
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
}

TEST_F(CopyPinTunerTest, OnePreemptionDoesNotDecide) {
  bool struck = false;
  for (int i = 0; i < 24; ++i) {
    const CopyPinTuner::Turn turn = tuner_.choose(kLen);
    const bool strike = turn.timed && turn.way == Way::kCopy && !std::exchange(struck, true);
    tuner_.note(turn, kLen, strike ? 4'000'000 : turn.way == Way::kCopy ? 5000 : 6000);
  }
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
}

TEST_F(CopyPinTunerTest, DoesNotChangeForALittle) {
  go(5000, {10000, 12000, 12000});
  ASSERT_EQ(tuner_.best(kLen), Way::kCopy);
  go(50000, {10000, 9900, 12000});
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
}

TEST_F(CopyPinTunerTest, TimesMayBeReportedLateOrNever) {
  std::vector<CopyPinTuner::Turn> open;
  for (int i = 0; i < 24; ++i) open.push_back(tuner_.choose(kLen));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(tuner_.choose(kLen).timed);
  for (size_t i = open.size(); i-- > 0;) {
    tuner_.note(open[i], kLen, open[i].way == Way::kCopy ? 1000 : 2000);
  }
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
  // A way whose uses all fail never reports a time.
  tuner_ = {};
  for (int i = 0; i < 3000; ++i) {
    const CopyPinTuner::Turn turn = tuner_.choose(kLen);
    if (turn.timed && turn.way != Way::kPin) {
      tuner_.note(turn, kLen, turn.way == Way::kCopy ? 2000 : 1000);
    }
  }
  EXPECT_EQ(tuner_.best(kLen), Way::kIfPinned);
}

TEST_F(CopyPinTunerTest, UntimedUsesAreNotCounted) {
  const uint8_t size_class = tuner_.choose(kLen).size_class;
  tuner_ = {};
  for (int i = 0; i < 100; ++i) tuner_.note({Way::kPin, false, size_class}, kLen, 1);
  go(24, {1000, 2000, 3000});
  EXPECT_EQ(tuner_.best(kLen), Way::kCopy);
}

TEST_F(CopyPinTunerTest, AnyLengthHasAChoice) {
  for (const size_t len : {size_t{0}, size_t{1}, SIZE_MAX}) {
    const CopyPinTuner::Turn turn = tuner_.choose(len);
    tuner_.note({turn.way, true, turn.size_class}, len, 100);
    (void)tuner_.best(len);
  }
}

}  // namespace
}  // namespace hydrant
