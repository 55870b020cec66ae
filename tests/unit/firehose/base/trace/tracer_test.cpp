// The tracer: every record of every thread reaches the sink once, in the thread's order, whatever ends first.
#include "firehose/base/trace/tracer.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <sys/resource.h>
#include <utility>

namespace hydrant::testing {
namespace {

// Keeps numbers by thread. The tracer calls it from one thread at a time.
class KeepingSink final : public TraceSink {
 public:
  void take(const TraceRecord& record, const TraceThread& thread,
            const TraceClock& clock) noexcept override {
    if (slow) {
      timespec pause = {.tv_sec = 0, .tv_nsec = 20'000};
      nanosleep(&pause, nullptr);
    }
    of_thread[thread.number].push_back(record.number);
    lines.push_back(thread.drained_file != nullptr ? thread.drained_line : 0);
    is_later = is_later && clock.ns_of(record.start) <= clock.ns_of(record.end);
    ++taken;
  }
  void flush() noexcept override {
    ++flushes;
    if (at_flush) std::exchange(at_flush, nullptr)();
  }

  void clear() {
    of_thread.clear();
    lines.clear();
    taken = flushes = 0;
    slow = false;
    is_later = true;
  }

  std::map<uint32_t, std::vector<uint64_t>> of_thread;
  std::vector<uint32_t> lines;
  std::atomic<uint64_t> taken{0};
  uint64_t flushes = 0;
  std::function<void()> at_flush;  // called once
  std::atomic<bool> slow{false};
  bool is_later = true;
};

KeepingSink& sink() {
  static KeepingSink the_sink;
  return the_sink;
}

class Tracer : public ::testing::Test {
 protected:
  void SetUp() override { sink().clear(); }
  void TearDown() override { EXPECT_TRUE(stop_tracing()); }
  static void start(bool is_flushed = false) {
    start_tracing(sink(), {.tsc_is_steady = true, .is_flushed = is_flushed});
  }
  static void write(uint64_t number) {
    const uint64_t now = TraceClock::ticks();
    trace({.start = now, .end = now + 1, .number = number});
  }
};

TEST_F(Tracer, IsOffUntilItStartsAndAfterItStops) {
  EXPECT_FALSE(is_tracing());
  start();
  EXPECT_TRUE(is_tracing());
  write(1);
  EXPECT_TRUE(stop_tracing());
  EXPECT_FALSE(is_tracing());
  EXPECT_EQ(sink().taken, 1u);
}

TEST_F(Tracer, AFloodOfManyThreadsLosesNothing) {
  constexpr uint64_t kEach = 40'000;  // several rings
  constexpr int kThreads = 4;
  start();
  Threads threads;
  for (int i = 0; i < kThreads; ++i)
    threads.start([] {
      for (uint64_t n = 0; n < kEach; ++n) write(n);
    });
  threads.join();
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(dropped_traces(), 0u);
  EXPECT_EQ(sink().taken, kEach * kThreads);
  EXPECT_EQ(sink().of_thread.size(), size_t{kThreads});
  EXPECT_TRUE(sink().is_later);
  for (const auto& [thread, numbers] : sink().of_thread) {
    ASSERT_EQ(numbers.size(), kEach);
    for (uint64_t n = 0; n < kEach; ++n) ASSERT_EQ(numbers[n], n) << "thread " << thread;
  }
}

TEST_F(Tracer, RecordsReachTheSinkWhileTheirThreadDoesSomethingElse) {
  start();
  write(7);
  EXPECT_TRUE(wait_until([] { return sink().taken.load() == 1; }));
}

TEST_F(Tracer, ThreadsThatEndLeaveTheirRecordsAndTheirRing) {
  start();
  std::set<const TraceThread*> rings;
  for (uint64_t i = 0; i < 20; ++i) {
    Threads threads;
    threads.start([&] {
      rings.insert(current_trace_thread());
      write(i);
    });
    threads.join();
  }
  EXPECT_EQ(rings.size(), 1u);
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(sink().taken, 20u);
  EXPECT_EQ(sink().of_thread.size(), 20u) << "each thread has a number of its own";
}

TEST_F(Tracer, ASlowSinkMakesAFullThreadWaitAndLosesNothing) {
  start();
  sink().slow = true;
  for (uint64_t n = 0; n < TraceThread::kRecords + 100; ++n) write(n);
  sink().slow = false;
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(sink().taken, TraceThread::kRecords + 100);
  EXPECT_EQ(dropped_traces(), 0u);
}

TEST_F(Tracer, FlushedRecordsAreThereAtReturn) {
  start(true);
  for (uint64_t n = 0; n < 10; ++n) {
    write(n);
    EXPECT_EQ(sink().taken, n + 1);
  }
  EXPECT_GE(sink().flushes, 10u);
}

TEST_F(Tracer, SourceLinesHoldForTheRecordsThatFollow) {
  start();
  write(1);
  trace({.name = "file.c", .number = 42, .kind = TraceKind::kSourceLine});
  write(2);
  write(3);
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(sink().lines, (std::vector<uint32_t>{0, 42, 42}));
}

TEST_F(Tracer, ChangesTakePlaceBetweenRecords) {
  start();
  write(1);
  static uint64_t taken_before = 0;
  EXPECT_TRUE(drain_traces(
      [](void* user) noexcept {
        taken_before = sink().taken;
        *static_cast<bool*>(user) = true;
      },
      &sink().slow));
  EXPECT_EQ(taken_before, 1u);
  EXPECT_TRUE(sink().slow);
}

TEST_F(Tracer, LastFunctionFollowsTheLastRecord) {
  start();
  write(1);
  write(2);
  static uint64_t taken_before = 0;
  static bool was_tracing = true;
  EXPECT_TRUE(stop_tracing(
      [](void* user) noexcept {
        taken_before = sink().taken;
        was_tracing = is_tracing();
        *static_cast<bool*>(user) = true;
      },
      &sink().slow));
  EXPECT_EQ(taken_before, 2u);
  EXPECT_FALSE(was_tracing);
  EXPECT_TRUE(sink().slow);
  sink().slow = false;
  EXPECT_TRUE(stop_tracing([](void*) noexcept { sink().slow = true; })) << "it has stopped before";
  EXPECT_FALSE(sink().slow);
}

// A thread waits for the end of the last drain. The pause lets it arrive there; with a shorter one it would
// find tracing stopped.
TEST_F(Tracer, DrainThatWaitsWhileTracingStopsHasNoEffect) {
  start(true);  // without a thread that drains
  write(1);
  static std::atomic<int> changes{0};
  Threads threads;
  sink().at_flush = [&] {
    std::atomic<bool> is_on_its_way{false};
    threads.start([&] {
      is_on_its_way = true;
      (void)drain_traces([](void*) noexcept { ++changes; });
    });
    while (!is_on_its_way) sched_yield();
    const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
    nanosleep(&pause, nullptr);
  };
  EXPECT_TRUE(stop_tracing());
  threads.join();
  EXPECT_EQ(changes, 0);
  EXPECT_EQ(sink().flushes, 2u) << "of the record, and of the end";
}

TEST_F(Tracer, NothingIsEndedBesideADrainThatGoesOn) {
  start(true);
  static std::atomic<bool> is_inside{false};
  static std::atomic<bool> may_leave{false};
  static std::atomic<bool> is_ended{false};
  Threads threads;
  threads.start([] {
    EXPECT_TRUE(drain_traces([](void*) noexcept {
      is_inside = true;
      while (!may_leave) sched_yield();
    }));
  });
  while (!is_inside) sched_yield();
  EXPECT_FALSE(stop_tracing([](void*) noexcept { is_ended = true; }));
  EXPECT_FALSE(is_ended);
  EXPECT_FALSE(is_tracing());
  may_leave = true;
  threads.join();
}

void write_in_handler(int) {
  const uint64_t now = TraceClock::ticks();
  trace({.start = now, .end = now, .number = 1'000'000});
}

TEST_F(Tracer, SignalHandlersOfAThreadInsideDropAndCount) {
  start();
  write(0);
  TraceThread* mine = current_trace_thread();
  ASSERT_NE(mine, nullptr);
  std::signal(SIGUSR1, write_in_handler);
  mine->is_inside = true;
  std::raise(SIGUSR1);
  mine->is_inside = false;
  std::raise(SIGUSR1);
  std::signal(SIGUSR1, SIG_DFL);
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(dropped_traces(), 1u);
  EXPECT_EQ(sink().taken, 2u);
}

TEST_F(Tracer, AThreadWithoutMemoryCountsItsRecords) {
  if (!kThreadsInChildren) GTEST_SKIP() << "the child needs a thread that has no ring yet";
  const auto body = []() -> std::string {
    start(true);
    Threads threads;
    threads.start([] {
      rlimit limit{};
      (void)getrlimit(RLIMIT_AS, &limit);
      const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
      (void)setrlimit(RLIMIT_AS, &none);
      for (uint64_t n = 0; n < 3; ++n) write(n);
      (void)setrlimit(RLIMIT_AS, &limit);
    });
    threads.join();
    if (sink().taken != 0) return "there was memory";
    return dropped_traces() == 3 ? "" : "they are not counted";
  };
  EXPECT_EQ(run_in_child(body), "");
}

TEST_F(Tracer, ChildOfAForkDoesNotTrace) {
  start();
  write(1);
  const auto body = []() -> std::string {
    if (is_tracing()) return "it traces";
    write(2);  // a call that was on its way in
    if (!drain_traces() || !stop_tracing()) return "it waits for the parent's threads";
    return sink().taken == 0 || sink().taken == 1 ? "" : "it has written";
  };
  EXPECT_EQ(run_in_child(body), "");
  write(3);
  EXPECT_TRUE(stop_tracing());
  EXPECT_EQ(sink().taken, 2u);
}

TEST_F(Tracer, TimesGrowWithTheClock) {
  start();
  const uint64_t first = TraceClock::ticks();
  timespec pause = {.tv_sec = 0, .tv_nsec = 20'000'000};
  nanosleep(&pause, nullptr);
  const uint64_t second = TraceClock::ticks();
  EXPECT_TRUE(stop_tracing());
  const TraceClock& clock = trace_clock();
  EXPECT_GE(clock.ns_of(second) - clock.ns_of(first), 19'900'000u);
  EXPECT_EQ(clock.ns_of(0), 0u);
}

}  // namespace
}  // namespace hydrant::testing
