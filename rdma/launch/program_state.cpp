// Stops and restarts interval timers, and resets what a supervisor still has of the program that it was.
// bootstrap_forked.cpp calls it around the forks.
#include "rdma/launch/program_state.hpp"

#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace hydrant::launch {
namespace {

constexpr uint64_t kNsPerUs = 1000;
constexpr uint64_t kUsPerSecond = 1'000'000;

// Shortens the time that is left by `ns`; a timer that has expired meanwhile does so at once.
void pass_time(timeval* left, uint64_t ns) noexcept {
  const uint64_t us =
      static_cast<uint64_t>(left->tv_sec) * kUsPerSecond + static_cast<uint64_t>(left->tv_usec);
  const uint64_t rest = us - std::min(us - 1, ns / kNsPerUs);
  left->tv_sec = static_cast<time_t>(rest / kUsPerSecond);
  left->tv_usec = static_cast<suseconds_t>(rest % kUsPerSecond);
}

// Timers of timer_create(2), by the kernel's numbers. Kernels without that file keep them; the supervisor
// ignores their signals.
void delete_timers() noexcept {
  std::vector<int> timers;
  for_each_line("/proc/self/timers", [&](std::string_view line) {
    int number = 0;
    if (std::sscanf(line.data(), "ID: %d", &number) == 1) timers.push_back(number);
    return true;
  });
  for (const int number : timers) syscall(SYS_timer_delete, number);
}

// Ignored signals stay ignored. Where a signal has its default action, the call would do one thing: the
// kernel would drop a SIGCHLD that is pending, by which the supervisor learns of a rank's early death.
void reset_handlers() noexcept {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&none, nullptr);
}

// A lower priority than usual stays, because the user may have chosen it, for the whole job.
void reset_priority() noexcept {
  const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  const sched_param usual = {.sched_priority = 0};
  if (policy == SCHED_FIFO || policy == SCHED_RR) sched_setscheduler(0, SCHED_OTHER, &usual);
  if (getpriority(PRIO_PROCESS, 0) < 0) setpriority(PRIO_PROCESS, 0, 0);
}

// Limits that could end or hinder a process that only supervises. Its limit of descriptors is its own.
void lift_limits() noexcept {
  for (const auto resource : {RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_RTTIME}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
  }
}

// Whether the process has a lock of fcntl(2) on the file, which would end when the descriptor is closed.
bool is_locked(int fd) noexcept {
  char path[64];
  (void)std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  bool is = false;
  for_each_line(path, [&](std::string_view line) {
    is = line.starts_with("lock:") && line.find("POSIX") != std::string_view::npos;
    return !is;
  });
  return is;
}

void close_descriptors(std::span<const int> own) noexcept {
  std::vector<int> open_ones;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > STDERR_FILENO && fd != dirfd(folder)) open_ones.push_back(fd);
  }
  closedir(folder);
  for (const int fd : open_ones) {
    if (std::find(own.begin(), own.end(), fd) == own.end() && !is_locked(fd))
      uncancelled::close(fd);
  }
  // The ranks have them, and end them for the readers and writers of pipes.
  const int nowhere = uncancelled::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    if (nowhere >= 0 && fcntl(fd, F_GETFD) >= 0) dup2(nowhere, fd);
  }
  if (nowhere > STDERR_FILENO) uncancelled::close(nowhere);
}

}  // namespace

ProgramState::ProgramState() noexcept : stopped_ns_(now_ns()) {
  const itimerval none = {};
  sigset_t pending;
  for (size_t i = 0; i < std::size(kTimers); ++i) setitimer(kTimers[i], &none, &left_[i]);
  sigemptyset(&pending);
  sigpending(&pending);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    is_pending_[i] = sigismember(&pending, kSignals[i]) == 1;
    if (!is_pending_[i]) continue;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, kSignals[i]);
    const timespec at_once = {};
    uncancelled::sigtimedwait(&one, nullptr, &at_once);
  }
}

void ProgramState::give_back() noexcept {
  if (!is_kept_) return;
  is_kept_ = false;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    if (is_pending_[i]) kill(getpid(), kSignals[i]);
    itimerval& left = left_[i];
    if (left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0) continue;
    if (kTimers[i] == ITIMER_REAL) pass_time(&left.it_value, now_ns() - stopped_ns_);
    setitimer(kTimers[i], &left, nullptr);
  }
}

void ProgramState::give_up(std::span<const int> own, bool has_threads) noexcept {
  is_kept_ = false;
  delete_timers();
  reset_handlers();
  reset_priority();
  lift_limits();
  munlockall();
  if (!has_threads) close_descriptors(own);
}

}  // namespace hydrant::launch
