#include "rdma/launch/program_state.hpp"

#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

namespace hydrant::launch {
namespace {

using testing::run_in_child;

void ignore_signal(int) {}

itimerval timer(int which) {
  itimerval now = {};
  getitimer(which, &now);
  return now;
}

TEST(ProgramState, TimersStopAndGoOn) {
  const itimerval long_ones = {.it_interval = {.tv_sec = 7, .tv_usec = 5},
                               .it_value = {.tv_sec = 1'000'000, .tv_usec = 0}};
  for (const int which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    ASSERT_EQ(setitimer(which, &long_ones, nullptr), 0);
    {
      const ProgramState state;
      EXPECT_EQ(timer(which).it_value.tv_sec, 0);
      EXPECT_EQ(timer(which).it_value.tv_usec, 0);
    }
    const itimerval after = timer(which);
    EXPECT_EQ(after.it_interval.tv_sec, 7);
    EXPECT_EQ(after.it_interval.tv_usec, 5);
    EXPECT_GT(after.it_value.tv_sec, 0);
    EXPECT_LE(after.it_value.tv_sec, 1'000'000);
    const itimerval none = {};
    ASSERT_EQ(setitimer(which, &none, nullptr), 0);
  }
}

TEST(ProgramState, TimerThatWouldHaveExpiredDoesSoAtOnce) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              sigset_t alarms;
              sigemptyset(&alarms);
              sigaddset(&alarms, SIGALRM);
              sigprocmask(SIG_BLOCK, &alarms, nullptr);
              const itimerval soon = {.it_interval = {},
                                      .it_value = {.tv_sec = 0, .tv_usec = 1000}};
              const timespec later = {.tv_sec = 0, .tv_nsec = 20'000'000};
              setitimer(ITIMER_REAL, &soon, nullptr);
              ProgramState state;
              nanosleep(&later, nullptr);
              state.give_back();
              int got = 0;
              return sigwait(&alarms, &got) == 0 && got == SIGALRM ? "" : "no signal";
            }),
            "");
}

TEST(ProgramState, PendingSignalsOfTimersAreTakenAndComeBack) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              sigset_t all;
              sigset_t pending;
              sigfillset(&all);
              sigprocmask(SIG_BLOCK, &all, nullptr);
              raise(SIGALRM);
              raise(SIGPROF);
              raise(SIGUSR1);
              {
                const ProgramState state;
                sigpending(&pending);
                if (sigismember(&pending, SIGALRM) == 1) return "SIGALRM is pending";
                if (sigismember(&pending, SIGUSR1) == 0) return "SIGUSR1 is not";
              }
              sigpending(&pending);
              for (const int number : {SIGALRM, SIGPROF, SIGUSR1})
                if (sigismember(&pending, number) == 0) return "a signal has not come back";
              return sigismember(&pending, SIGVTALRM) == 0 ? "" : "a signal that was not there";
            }),
            "");
}

// The test itself needs them: the child's pipe, for example.
std::vector<int> open_descriptors() {
  std::vector<int> all;
  for (int fd = 0; fd < 256; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) all.push_back(fd);
  return all;
}

// Reads a timer by the kernel's number, as glibc's timer_t has it.
bool is_timer(timer_t number) {
  itimerspec now = {};
  return timer_gettime(number, &now) == 0;
}

TEST(ProgramState, SupervisorKeepsNothing) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              std::vector<int> own = open_descriptors();
              timer_t posix = nullptr;
              if (timer_create(CLOCK_MONOTONIC, nullptr, &posix) != 0) return "timer_create";
              const bool lists_timers = access("/proc/self/timers", R_OK) == 0;
              signal(SIGSEGV, ignore_signal);
              signal(SIGUSR2, ignore_signal);
              signal(SIGTSTP, SIG_IGN);
              static char stack[65536];
              const stack_t alternative = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
              if (sigaltstack(&alternative, nullptr) != 0) return "sigaltstack";
              const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
              const bool is_limited = setrlimit(RLIMIT_FSIZE, &small) == 0;
              int ends[2] = {-1, -1};
              if (pipe(ends) != 0) return "pipe";
              const sched_param realtime = {.sched_priority = 1};
              (void)sched_setscheduler(0, SCHED_FIFO, &realtime);  // the super-user may
              (void)setpriority(PRIO_PROCESS, 0, -1);
              ProgramState state;
              own.push_back(ends[1]);
              state.give_up(own, false);
              if (lists_timers && is_timer(posix)) return "a timer";
              struct sigaction action {};
              for (const int number : {SIGSEGV, SIGUSR2}) {
                sigaction(number, nullptr, &action);
                if (action.sa_handler != SIG_DFL) return "a handler";
              }
              sigaction(SIGTSTP, nullptr, &action);
              if (action.sa_handler != SIG_IGN) return "an ignored signal is no longer";
              stack_t now = {};
              sigaltstack(nullptr, &now);
              if (now.ss_flags != SS_DISABLE) return "a stack of signals";
              rlimit limit{};
              getrlimit(RLIMIT_FSIZE, &limit);
              if (is_limited && limit.rlim_cur != RLIM_INFINITY) return "a limit";
              if (fcntl(ends[0], F_GETFD) >= 0) return "a descriptor";
              if (fcntl(ends[1], F_GETFD) < 0) return "its own descriptor is closed";
              if (sched_getscheduler(0) != SCHED_OTHER) return "a policy";
              return getpriority(PRIO_PROCESS, 0) < 0 ? "a priority" : "";
            }),
            "");
}

TEST(ProgramState, MemoryIsUnlocked) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              static char page[4096];
              if (mlock(page, sizeof page) != 0) return "";  // no lock is allowed
              ProgramState state;
              state.give_up({}, true);
              FILE* file = std::fopen("/proc/self/status", "re");
              if (file == nullptr) return "";
              char line[256];
              unsigned locked = 1;
              while (std::fgets(line, sizeof line, file) != nullptr)
                if (std::sscanf(line, "VmLck: %u", &locked) == 1) break;
              std::fclose(file);
              return locked == 0 ? "" : std::to_string(locked) + " KiB";
            }),
            "");
}

TEST(ProgramState, LockedFilesAndDescriptorsOfThreadsStayOpen) {
  const auto is_open_after = [](bool has_lock, bool has_threads) {
    return run_in_child([=]() -> std::string {
      const std::vector<int> own = open_descriptors();
      char path[] = "program_state_test.XXXXXX";
      const int fd = mkostemp(path, O_CLOEXEC);
      unlink(path);
      if (has_lock && lockf(fd, F_LOCK, 0) != 0) return "lockf";
      ProgramState state;
      state.give_up(own, has_threads);
      return fcntl(fd, F_GETFD) >= 0 ? "open" : "closed";
    });
  };
  EXPECT_EQ(is_open_after(false, false), "closed");
  EXPECT_EQ(is_open_after(true, false), "open");
  EXPECT_EQ(is_open_after(false, true), "open");
}

}  // namespace
}  // namespace hydrant::launch
