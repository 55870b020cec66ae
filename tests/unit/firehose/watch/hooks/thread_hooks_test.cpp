#include "tests/support/patience.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <threads.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uint32_t kMaxRecords = 4096;

uint32_t own_tid() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

class ThreadHooks : public ::testing::Test {
 protected:
  FakeMonitor monitor_;
};

struct Begin {
  uint64_t syncs = 0;
  const hydrant_hooks_thread_t* record = nullptr;
  void* argument = nullptr;
};

void* note_begin(void* argument) {
  auto* begin = static_cast<Begin*>(argument);
  begin->syncs = FakeMonitor::calls().syncs;
  begin->record = own_record();
  begin->argument = argument;
  return &begin->argument;
}
int note_c11_begin(void* argument) {
  note_begin(argument);
  return 42;
}

TEST_F(ThreadHooks, ThreadsStackIsSyncedBeforeItsUse) {
  FakeMonitor::pin_everything();
  Begin begin;
  const uint64_t before = FakeMonitor::calls().syncs;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, note_begin, &begin), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, &begin.argument);
  EXPECT_EQ(begin.argument, &begin);
  EXPECT_GE(begin.syncs, before + 1);
  EXPECT_NE(begin.record, nullptr);
}

TEST_F(ThreadHooks, EndOfAThreadNamesItsStackUnlessThatIsTheProgramsOwn) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr, [](void* argument) { return argument; }, nullptr),
            0);
  const auto descriptor = static_cast<uintptr_t>(thread);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(FakeMonitor::ended_stack(), descriptor);

  constexpr size_t kBytes = 256 << 10;
  void* stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kBytes), 0);
  ASSERT_EQ(pthread_create(
                &thread, &attributes, [](void* argument) { return argument; }, nullptr),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(FakeMonitor::ended_stack(), descriptor);
  pthread_attr_destroy(&attributes);
  munmap(stack, kBytes);
}

TEST_F(ThreadHooks, ThreadsOfC11BeginTheSameWay) {
  FakeMonitor::pin_everything();
  Begin begin;
  const uint64_t before = FakeMonitor::calls().syncs;
  thrd_t thread;
  ASSERT_EQ(thrd_create(&thread, note_c11_begin, &begin), thrd_success);
  int result = 0;
  ASSERT_EQ(thrd_join(thread, &result), thrd_success);
  EXPECT_EQ(result, 42);
  EXPECT_GE(begin.syncs, before + 1);
  EXPECT_NE(begin.record, nullptr);
}

TEST_F(ThreadHooks, LibcsRefusalIsPassedOn) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 46), 0);
  pthread_t thread;
  Begin begin;
  for (int i = 0; i < 1000; ++i) {  // more than there are places for threads that begin
    ASSERT_EQ(pthread_create(&thread, &attributes, note_begin, &begin), EAGAIN);
  }
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(begin.record, nullptr);
}

TEST_F(ThreadHooks, EndingThreadStaysEnteredUntilItExits) {
  FakeMonitor::set_removals(9);
  uint32_t tid = 0;
  const hydrant_hooks_thread_t* record = nullptr;
  std::thread([&] {
    tid = own_tid();
    record = own_record();
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->ending, 0u);
    EXPECT_EQ(record->entered, 0u);
  }).join();
  EXPECT_EQ(record->tid, tid);
  EXPECT_EQ(record->ending, 1u);
  EXPECT_EQ(record->entered, 9u);
}

// A destructor of the thread's own that runs after ours frees, and does not unmark the thread.
TEST_F(ThreadHooks, CallsOfAnEndingThreadDoNotUnmarkIt) {
  static std::atomic<uint64_t> seen;
  pthread_key_t key;
  const auto destructor = [](void* memory) {
    free(memory);
    munmap(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    seen = own_record()->entered;
  };
  ASSERT_EQ(pthread_key_create(&key, destructor), 0);
  FakeMonitor::set_removals(3);
  std::thread([&] { pthread_setspecific(key, malloc(10)); }).join();
  EXPECT_EQ(seen, 3u);
  pthread_key_delete(key);
}

TEST_F(ThreadHooks, RecordsOfThreadsThatEndedAreUsedAgain) {
  for (int i = 0; i < 10000; ++i) std::thread([] {}).join();
  EXPECT_LT(hooks()->thread_count, 200u);
  EXPECT_EQ(hooks()->overflowed, 0u);
}

TEST_F(ThreadHooks, NoTwoLiveThreadsShareARecord) {
  constexpr size_t kThreads = 600;  // more than there are places for threads that begin
  std::atomic<size_t> arrived = 0;
  std::atomic<bool> go = false;
  std::vector<const hydrant_hooks_thread_t*> records(kThreads, nullptr);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      records[i] = own_record();
      ++arrived;
      while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(records[i]->tid, own_tid());
      EXPECT_EQ(records[i]->ending, 0u);
    });
  }
  while (arrived < kThreads) std::this_thread::yield();
  go = true;
  for (std::thread& thread : threads) thread.join();
  std::sort(records.begin(), records.end());
  EXPECT_EQ(std::unique(records.begin(), records.end()), records.end());
  EXPECT_NE(records.front(), nullptr);
}

// Blocks until the other end of the pipe is closed.
void* wait_for_end(void* read_end) {
  char byte;
  while (read(*static_cast<int*>(read_end), &byte, 1) > 0) {
  }
  return nullptr;
}

TEST_F(ThreadHooks, MoreThreadsThanRecordsAreReportedAndHarmless) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<pthread_t> threads;
  int refused = 0;
  while (threads.size() < kMaxRecords + 100 && refused == 0) {
    pthread_t thread;
    refused = pthread_create(&thread, &attributes, wait_for_end, &ends[0]);
    if (refused == 0) threads.push_back(thread);
  }
  const auto deadline =
      std::chrono::steady_clock::now() + testing::patiently(std::chrono::seconds(60));
  while (refused == 0 && __atomic_load_n(&hooks()->overflowed, __ATOMIC_ACQUIRE) == 0 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  const uint32_t overflowed = hooks()->overflowed;
  close(ends[1]);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  close(ends[0]);
  pthread_attr_destroy(&attributes);
  if (refused != 0) {
    GTEST_SKIP() << "only " << threads.size() << " threads: " << std::strerror(refused);
  }
  EXPECT_EQ(overflowed, 1u);
  EXPECT_EQ(hooks()->thread_count, kMaxRecords);
}

// Runs `body` in a forked child; returns its result, 0 to 255.
template <typename Body>
int in_forked_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST_F(ThreadHooks, ForkedChildHasOneThread) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      free(malloc(1 << 20));
      std::this_thread::yield();
    }
  });
  const int answer = in_forked_child([] {
    uint32_t live = 0;
    for (uint32_t i = 0; i < hooks()->thread_count; ++i) live += hooks()->threads[i].tid != 0;
    if (live != 1) return 1;
    const hydrant_hooks_thread_t* own = own_record();
    if (own == nullptr) return 2;
    if (own->tid != own_tid() || own->entered != 0) return 3;
    if (hooks()->overflowed != 0) return 4;
    // And threads can be started and seen there.
    Begin begin;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, note_begin, &begin) != 0) return 5;
    pthread_join(thread, nullptr);
    return begin.record != nullptr && begin.record != own ? 0 : 6;
  });
  stop = true;
  other.join();
  EXPECT_EQ(answer, 0);
}

TEST_F(ThreadHooks, ManyForksWorkWhileThreadsAllocate) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) std::thread([] { free(malloc(1 << 20)); }).join();
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(in_forked_child([] {
                free(malloc(1 << 20));
                return 0;
              }),
              0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace hydrant::testing
