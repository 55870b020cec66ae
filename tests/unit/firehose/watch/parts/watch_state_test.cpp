// The state of the monitor's start against a model with a few states.
#include "firehose/watch/watch_state.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hydrant::testing {
namespace {

enum class Phase { kNotStarted, kRunning, kRefused };

TEST(WatchState, StartsOnceUntilAFork) {
  WatchState state;
  Userfault userfault;
  EXPECT_STREQ(state.reason(), "");
  Phase phase = Phase::kNotStarted;
  std::string reason;
  Random random(test_seed());
  for (int step = 0; step < 2000; ++step) {
    switch (random.below(4)) {
      case 0:
      case 1: {
        const bool succeeds = random.below(2) == 0;
        bool is_called = false;
        const bool is_running = state.start_once([&](const char** why) {
          is_called = true;
          EXPECT_FALSE(state.is_running()) << "before it has started";
          if (!succeeds) *why = "no memory";
          return succeeds;
        });
        ASSERT_EQ(is_called, phase == Phase::kNotStarted) << step;
        if (is_called) {
          phase = succeeds ? Phase::kRunning : Phase::kRefused;
          reason = succeeds ? "" : "no memory";
        }
        ASSERT_EQ(is_running, phase == Phase::kRunning) << step;
        break;
      }
      case 2:
        if (phase != Phase::kRunning) break;
        state.end(userfault, "closed");
        phase = Phase::kRefused;
        reason = "closed";
        break;
      default:
        if (random.below(4) != 0) break;
        state.reset_in_child();
        phase = Phase::kNotStarted;
    }
    ASSERT_EQ(state.is_running(), phase == Phase::kRunning) << step;
    ASSERT_EQ(state.reason(), reason) << step;
  }
}

}  // namespace
}  // namespace hydrant::testing
