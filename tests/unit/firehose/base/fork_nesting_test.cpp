// Locks that fork handlers take: forks one after another, inside a section, and inside another fork.
#include "firehose/base/fork_nesting.hpp"

#include <gtest/gtest.h>

namespace hydrant {
namespace {

TEST(ForkNesting, ForkLocksUnlessItsThreadHoldsAMutex) {
  ForkNesting nesting;
  Mutex mutex;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(nesting.begin());
    EXPECT_TRUE(nesting.end());
    nesting.unlocked();
    const MutexLock lock(mutex);
    ASSERT_FALSE(nesting.begin());
    EXPECT_FALSE(nesting.end());
  }
}

TEST(ForkNesting, ForkInsideAForkLocksNothing) {
  ForkNesting nesting;
  ASSERT_TRUE(nesting.begin());
  ASSERT_FALSE(nesting.begin());
  ASSERT_FALSE(nesting.begin());
  EXPECT_FALSE(nesting.end());
  EXPECT_FALSE(nesting.end());
  EXPECT_TRUE(nesting.end());
  nesting.unlocked();
  EXPECT_TRUE(nesting.begin());
}

TEST(ForkNesting, ForksOfAChildTakeTheLocks) {
  ForkNesting nesting;
  ASSERT_TRUE(nesting.begin());
  EXPECT_TRUE(nesting.finish_in_child());
  ASSERT_TRUE(nesting.begin());
  ASSERT_FALSE(nesting.begin());
  EXPECT_FALSE(nesting.finish_in_child());
  ASSERT_TRUE(nesting.begin());
  EXPECT_TRUE(nesting.finish_in_child());

  Mutex mutex;
  {
    const MutexLock lock(mutex);
    ASSERT_FALSE(nesting.begin());
    EXPECT_FALSE(nesting.finish_in_child());
    EXPECT_TRUE(nesting.begin());
  }
  Mutex::discount_held();  // a child never unlocks it
}

}  // namespace
}  // namespace hydrant
