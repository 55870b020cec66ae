// Tables that are mapped while the monitor registers the mappings that it has looked up.
#include "firehose/base/watch_windows.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {
namespace {

using Answer = WatchWindows::Answer;

constexpr MemoryRange kInside{0x2000, 0x1000};
constexpr MemoryRange kOutside{0x8000, 0x1000};
constexpr MemoryRange kRegistered{0x1000, 0x3000};

class WatchWindowsTest : public ::testing::Test {
 protected:
  void run_window(MemoryRange range) {
    windows_.open();
    windows_.announce(range);
    windows_.close();
  }
  WatchWindows windows_;
};

TEST_F(WatchWindowsTest, WithoutAWindowEverythingIsApart) {
  EXPECT_EQ(windows_.ask(windows_.now(), kInside), Answer::kApart);
  run_window(kRegistered);
  EXPECT_EQ(windows_.ask(windows_.now(), kInside), Answer::kApart);
}

TEST_F(WatchWindowsTest, OpenWindowIsNotKnownUntilItIsAnnounced) {
  windows_.open();
  const uint64_t since = windows_.now();
  EXPECT_EQ(windows_.ask(since, kInside), Answer::kNotKnownYet);
  windows_.announce(kRegistered);
  EXPECT_EQ(windows_.ask(since, kInside), Answer::kMayBeWatched);
  EXPECT_EQ(windows_.ask(since, kOutside), Answer::kApart);
  windows_.close();
  EXPECT_EQ(windows_.ask(since, kInside), Answer::kMayBeWatched);
  EXPECT_EQ(windows_.ask(since, kOutside), Answer::kApart);
}

TEST_F(WatchWindowsTest, EmptyWindowIsApart) {
  const uint64_t since = windows_.now();
  windows_.open();
  windows_.close();
  EXPECT_EQ(windows_.ask(since, kInside), Answer::kApart);
}

TEST_F(WatchWindowsTest, EachWindowSinceThenCounts) {
  constexpr int kWindows = 64;
  run_window(kInside);
  const uint64_t since = windows_.now();
  for (int i = 0; i < kWindows; ++i) run_window(i == 0 ? kRegistered : kOutside);
  EXPECT_EQ(windows_.ask(since, kInside), Answer::kMayBeWatched);
  EXPECT_EQ(windows_.ask(since + 2, kInside), Answer::kApart);
}

TEST_F(WatchWindowsTest, TooManyWindowsMayHaveRegisteredAnything) {
  constexpr int kMoreThanKept = 65;
  const uint64_t since = windows_.now();
  for (int i = 0; i < kMoreThanKept; ++i) run_window(kRegistered);
  EXPECT_EQ(windows_.ask(since, kOutside), Answer::kMayBeWatched);
}

TEST_F(WatchWindowsTest, ChildHasNoWindowOpen) {
  windows_.open();
  windows_.reset_in_child();
  EXPECT_EQ(windows_.now() % 2, 0u);
  windows_.reset_in_child();
  EXPECT_EQ(windows_.ask(windows_.now(), kInside), Answer::kApart);
}

}  // namespace
}  // namespace hydrant::testing
