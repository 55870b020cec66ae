// Forks in signal handlers while their thread opens and closes rings.
#include "firehose/registrars/uring/uring_ring.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace hydrant {
namespace {

using testing::run_in_child;

// Async-signal-safe: whether this process has a descriptor or a mapping of a ring.
bool has_ring() {
  char path[32];
  char text[256];
  for (int fd = 0; fd < 64; ++fd) {
    (void)std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, text, sizeof text);
    if (n > 0 && memmem(text, static_cast<size_t>(n), "io_uring", 8) != nullptr) return true;
  }
  static char maps[size_t{1} << 20];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  for (ssize_t n = 1; n > 0; size += static_cast<size_t>(n)) {
    n = read(file, maps + size, sizeof maps - size);
    if (n < 0) return true;
  }
  return memmem(maps, size, "io_uring", 8) != nullptr;
}

volatile sig_atomic_t g_forks = 0, g_children_with_rings = 0;

// Forks only after a system call, of which opening and closing consist: fork() deadlocks if the handler
// interrupts malloc(), in a process that has had threads.
void fork_and_look(int, siginfo_t*, void* context) {
  const auto next = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  constexpr unsigned char kSyscall[] = {0x0f, 0x05};
  if (std::memcmp(reinterpret_cast<const char*>(next) - sizeof kSyscall, kSyscall,
                  sizeof kSyscall) != 0)
    return;
  const int kept = errno;
  const pid_t child = fork();
  if (child == 0) _exit(has_ring() ? 1 : 0);
  int end = 0;
  if (child < 0 || waitpid(child, &end, 0) != child || end != 0)
    g_children_with_rings = g_children_with_rings + 1;
  g_forks = g_forks + 1;
  errno = kept;
}

std::string fork_in_handlers() {
  constexpr int kForks = 200;
  constexpr unsigned kLatestNs = 300'000;  // longer than a ring lives
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = &fork_and_look;
  sigaction(SIGUSR1, &action, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return "no timer";
  for (unsigned i = 1; g_forks < kForks; ++i) {
    itimerspec once{};
    once.it_value.tv_nsec = 1 + static_cast<long>(i * 7919 % kLatestNs);
    timer_settime(timer, 0, &once, nullptr);
    UringFailure failure;
    if (UringRing::open(64, false, &failure) == nullptr)
      return "no ring: " + std::to_string(failure.error);
  }
  timer_delete(timer);
  if (g_children_with_rings == 0) return "";
  return std::to_string(g_children_with_rings) + " children have a ring";
}

TEST(UringForks, ForkInASignalHandlerClosesTheInterruptedThreadsRing) {
  HYDRANT_URING_OR_SKIP(uring);
  EXPECT_EQ(run_in_child(fork_in_handlers), "");
}

}  // namespace
}  // namespace hydrant

#endif
