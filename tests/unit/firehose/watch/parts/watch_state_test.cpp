// The state of the monitor's start against a model with a few states.
#include "firehose/watch/watch_state.hpp"

#include "tests/support/recording_registrar.hpp"
#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>

namespace hydrant::testing {
namespace {

enum class Phase { kNotStarted, kRunning, kRefused, kShort };

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
        const int error = std::array{0, EPERM, EMFILE, ENOMEM}[random.below(4)];
        const bool now = random.below(2) == 0;
        bool is_called = false;
        const bool is_running = state.start_once(now, [&](const char** why) {
          is_called = true;
          EXPECT_FALSE(state.is_running()) << "before it has started";
          if (error != 0) *why = "no memory";
          return error;
        });
        // A look within 100 ms of a shortage does not start, one that comes later does.
        if (phase != Phase::kShort || now) {
          ASSERT_EQ(is_called, phase == Phase::kNotStarted || phase == Phase::kShort) << step;
        }
        if (is_called) {
          phase = error == 0 ? Phase::kRunning : error == EPERM ? Phase::kRefused : Phase::kShort;
          reason = error == 0 ? "" : "no memory";
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

TEST(WatchState, AShortageIsTriedAgainInTime) {
  WatchState state;
  EXPECT_FALSE(state.start_once(false, [](const char**) { return EAGAIN; }));
  EXPECT_TRUE(wait_until([&] { return state.start_once(false, [](const char**) { return 0; }); }));
  EXPECT_STREQ(state.reason(), "");
}

}  // namespace
}  // namespace hydrant::testing
