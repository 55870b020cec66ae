// Signal handlers that release watched memory while the interrupted thread is inside the monitor: in a
// client's notification, or with a mutex of the monitor. The tests run in children, which are killed if they
// hang.
#include <hydrant/monitor.h>

#include "firehose/watch/mutant.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/unit/firehose/watch/listener.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// The handler replaces pages of it, one after the other, and empties the last ones.
struct Work {
  static constexpr size_t kPages = 16;
  MappedMemory memory{2 * kPages};
  std::atomic<bool> due{false};
  std::atomic<size_t> replaced{0}, emptied{0};

  void run() {
    if (!due.exchange(false)) return;
    for (size_t page = 0; page < kPages; ++page) {
      void* at = memory.page(page);
      if (mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          at) {
        ++replaced;
      }
      if (madvise(memory.page(kPages + page), kPage, MADV_DONTNEED) == 0) ++emptied;
    }
  }
};
std::atomic<Work*> g_work{nullptr};

void on_signal(int) {
  const int saved = errno;
  if (Work* work = g_work) work->run();
  errno = saved;
}

class MonitorSignals : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    if (!kThreadsInChildren) GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
  }
  // body() in a child whose handler's memory is watched.
  static std::string in_child(const std::function<std::string(Work&)>& body) {
    return run_in_child([&]() -> std::string {
      struct sigaction action {};
      action.sa_handler = &on_signal;
      action.sa_flags = SA_RESTART;
      sigaction(SIGUSR1, &action, nullptr);
      Work work;
      work.memory.replace(0, 2 * Work::kPages);
      std::memset(work.memory.page(), 1, work.memory.bytes());
      if (cover(work.memory, 0, 2 * Work::kPages) != HYDRANT_COVER_CHECKED) return "not covered";
      g_work = &work;
      std::string wrong = body(work);
      g_work = nullptr;
      if (!wrong.empty()) return wrong;
      if (work.replaced == 0 || work.replaced != work.emptied) return "the handler did not run";
      // The handler's changes are known: new mappings may be cached, and emptied ones not, without the hooks.
      if (cover(work.memory, 0, Work::kPages) != HYDRANT_COVER_CHECKED) return "new memory is not";
      if (cover(work.memory, Work::kPages, 1) != HYDRANT_COVER_NONE) return "emptied memory is";
      return "";
    });
  }
};

// The client counts its notifications; once, the signal arrives during a notification.
struct Interrupted {
  std::atomic<bool> raises{true};
  std::atomic<int> told{0};
};

TEST_F(MonitorSignals, HandlerThatReleasesDuringANotificationReturns) {
  EXPECT_EQ(in_child([](Work& work) -> std::string {
              Interrupted self;
              hydrant_monitor_client_t client{};
              client.context = &self;
              client.forget = [](void* context, uintptr_t, size_t) {
                auto* me = static_cast<Interrupted*>(context);
                if (me->raises.exchange(false)) raise(SIGUSR1);
                ++me->told;
              };
              client.forget_vouched = [](void*) {};
              client.pinned = [](void*, uintptr_t, size_t) { return 0; };
              const int number = the_monitor().subscribe(&client);
              work.due = true;
              the_monitor().invalidate(work.memory.addr(), kPage);
              the_monitor().settle();
              const int told = self.told;
              the_monitor().unsubscribe(number);
              // The notification of its own range, and two for each page.
              return told >= 1 + static_cast<int>(2 * Work::kPages)
                         ? ""
                         : "told " + std::to_string(told) + " times";
            }),
            "");
}

#if HYDRANT_MUTANTS
// Covers other memory repeatedly. A pause is inserted while the mutex of the ranges is held; the timer's
// signals arrive in it.
std::string cover_beside_handlers(std::atomic<bool>& due) {
  MappedMemory other(4);
  other.replace(0, 4);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = gettid();
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return "no timer";
  // A single signal each time: a handler may take longer than any period, and its thread would make no
  // progress between two.
  const itimerspec once{{0, 0}, {0, 1'000'000}};
  constexpr unsigned kPauseUs = 5000;
  set_mutant(Mutant::kNone, kPauseUs);
  for (int i = 0; i < 20; ++i) {
    due = true;
    if (timer_settime(timer, 0, &once, nullptr) != 0) return "no timer";
    (void)cover(other, 0, 4);
  }
  set_mutant(Mutant::kNone, 0);
  timer_delete(timer);
  due = false;
  return "";
}

TEST_F(MonitorSignals, HandlerThatReleasesUnderTheMutexOfTheRangesReturns) {
  EXPECT_EQ(in_child([](Work& work) { return cover_beside_handlers(work.due); }), "");
}

// Unwatches as the hook of ioctl() does for another userfaultfd.
struct UnwatchWork {
  MappedMemory memory{4};
  std::atomic<bool> due{false};
  std::atomic<int> calls{0};
};
std::atomic<UnwatchWork*> g_unwatch_work{nullptr};

TEST_F(MonitorSignals, HandlerThatUnwatchesUnderTheRangesMutexReturns) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              struct sigaction action {};
              action.sa_handler = [](int) {
                UnwatchWork& work = *g_unwatch_work;
                if (!work.due.exchange(false)) return;
                (void)the_monitor().unwatch_range(work.memory.addr(), work.memory.bytes(), 0);
                ++work.calls;
              };
              sigaction(SIGUSR1, &action, nullptr);
              UnwatchWork work;
              work.memory.replace(0, 4);
              if (cover(work.memory, 0, 4) != HYDRANT_COVER_CHECKED) return "not covered";
              g_unwatch_work = &work;
              const std::string wrong = cover_beside_handlers(work.due);
              return wrong.empty() && work.calls == 0 ? "the handler did not run" : wrong;
            }),
            "");
}
#endif

}  // namespace
}  // namespace hydrant::testing
