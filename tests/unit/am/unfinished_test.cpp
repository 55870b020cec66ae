// The list of operations that polls continue.
#include "am/progress/unfinished.hpp"

#include "am/call/thread_state.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hydrant::test {
namespace {

std::vector<int> turns;

struct Step : Unfinished {
  explicit Step(int its_number, int its_turns) : number(its_number), left(its_turns) {
    proceed = [](Unfinished& operation) noexcept {
      auto& step = static_cast<Step&>(operation);
      turns.push_back(step.number);
      return --step.left == 0;
    };
  }
  int number;
  int left;
};

TEST(Unfinished, EachHasATurnPerPollInOrderUntilItIsOver) {
  turns.clear();
  Step first(1, 2);
  Step second(2, 1);
  Step third(3, 3);
  for (Step* step : {&first, &second, &third}) continue_in_polls(*step);
  EXPECT_EQ(continue_unfinished(), 1u);
  EXPECT_EQ(continue_unfinished(), 1u);
  EXPECT_EQ(continue_unfinished(), 1u);
  EXPECT_EQ(continue_unfinished(), 0u);
  EXPECT_EQ(turns, (std::vector<int>{1, 2, 3, 1, 3, 3}));
}

TEST(Unfinished, OperationsMayBeAddedInATurn) {
  turns.clear();
  static Step later(2, 1);
  Unfinished first;
  first.proceed = [](Unfinished&) noexcept {
    continue_in_polls(later);
    return true;
  };
  continue_in_polls(first);
  EXPECT_EQ(continue_unfinished(), 1u);
  EXPECT_EQ(continue_unfinished(), 1u);
  EXPECT_EQ(turns, std::vector<int>{2});
}

TEST(Unfinished, NothingIsContinuedInsideAHandler) {
  turns.clear();
  Step step(1, 1);
  continue_in_polls(step);
  ++handler_depth;
  EXPECT_EQ(continue_unfinished(), 0u);
  --handler_depth;
  EXPECT_EQ(continue_unfinished(), 1u);
}

}  // namespace
}  // namespace hydrant::test
