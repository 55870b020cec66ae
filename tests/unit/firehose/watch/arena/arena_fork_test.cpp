// The arenas' fork handlers beside the cache's in one static image, in the order that results when a domain
// is created before the arenas' constructor runs.
#include <hydrant/alloc.h>

#include "firehose/base/thread.hpp"
#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>

#include <pthread.h>
#include <string>

namespace hydrant::testing {
namespace {

int g_forks = 0;
bool g_held_before = false, g_held_in_parent = false, g_held_in_child = false;

// Before the arenas' constructor, so that the arenas lock first.
[[gnu::constructor(101)]] void register_first() {
  (void)pthread_atfork(
      [] {
        ++g_forks;
        g_held_before = Mutex::any_held();
      },
      [] { g_held_in_parent = Mutex::any_held(); }, [] { g_held_in_child = Mutex::any_held(); });
}

TEST(ArenaForks, LocksOfTheArenasDoNotCountAsHeld) {
  hydrant_free(hydrant_alloc(100));
  const int before = g_forks;
  EXPECT_EQ(run_in_child([] { return g_held_in_child ? "held in the child" : std::string(); }), "");
  EXPECT_EQ(g_forks, before + 1);
  EXPECT_FALSE(g_held_before);
  EXPECT_FALSE(g_held_in_parent);
  EXPECT_FALSE(Mutex::any_held());
}

}  // namespace
}  // namespace hydrant::testing
