// The reader thread, whose userfaultfd the program has closed: its first look at the descriptor ends
// watching.
#include "firehose/watch/reader_thread.hpp"

#include "firehose/watch/pause.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace hydrant::testing {
namespace {

// Lives as long as the thread may.
struct ReaderParts {
  Userfault userfault;
  WatchState state;
  ReadingSequence sequence;
  HookedCallsUnderWay calls;
  WatchedRanges watched;
  ThreadStacks stacks;
  DeferredChanges deferred;
  RemovalsUnderWay removals{watched, deferred, calls};
  MonitorClients clients;
  RawReleases raw{userfault, watched, stacks, calls, clients};
  ChangeReader changes{userfault, sequence, raw, {watched, stacks, removals, deferred}, clients};
  ReaderThread reader{userfault, state, sequence, changes, deferred, watched, clients};
};

TEST(ReaderThread, EndsWatchingWhenTheDescriptorIsClosed) {
  static ReaderParts parts;
  static std::atomic<bool> is_forgotten{false};
  fake_userfault() = {};
  fake_userfault().is_usable = fake_userfault().is_open = false;
  hydrant_monitor_client_t client{};
  client.forget = [](void*, uintptr_t addr, size_t len) {
    EXPECT_EQ((MemoryRange{addr, len}), MonitorClients::kAllMemory);
    is_forgotten = true;
  };
  ASSERT_EQ(parts.clients.subscribe(client), 0);
  const uint64_t before = parts.watched.changes();
  ASSERT_TRUE(parts.state.start_once(false, [](const char**) { return parts.reader.start(); }));
  Pause pause(UINT64_MAX);
  while (!parts.sequence.has_reached(2)) (void)pause.again();
  EXPECT_TRUE(is_forgotten);
  EXPECT_FALSE(parts.state.is_running());
  EXPECT_NE(parts.state.reason()[0], '\0');
  EXPECT_NE(parts.watched.changes(), before) << "nothing counts as watched";
  EXPECT_FALSE(parts.state.start_once(true, [](const char**) { return 0; }));
}

}  // namespace
}  // namespace hydrant::testing
