#include "tests/stale/hunt/stacks.hpp"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr int kSignal = SIGUSR2;
constexpr int kFrames = 40;
constexpr int kPauses = 100;  // of a millisecond
std::atomic<int> g_shown{0};

void show_own(int) {
  void* frames[kFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
  ++g_shown;
}

// Before the program ends of it: where, and at what address.
[[maybe_unused]] void show_fault(int signal, siginfo_t* info, void*) {
  char text[128];
  const int n = std::snprintf(text, sizeof text, "signal %d in thread %ld at address %p:\n", signal,
                              syscall(SYS_gettid), info->si_addr);
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(n));
  show_own(0);
}

void copy_to_stderr(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[512];
  const ssize_t n = read(fd, text, sizeof text);
  if (n > 0) (void)!write(STDERR_FILENO, text, static_cast<size_t>(n));
  close(fd);
}

void show(int thread) {
  char path[64];
  const int n = std::snprintf(path, sizeof path, "thread %d: ", thread);  // dprintf() allocates
  (void)!write(STDERR_FILENO, path, static_cast<size_t>(n));
  for (const char* file : {"comm", "syscall"}) {
    std::snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, file);
    copy_to_stderr(path);
  }
  const int before = g_shown;
  if (syscall(SYS_tgkill, getpid(), thread, kSignal) != 0) return;
  for (int i = 0; i < kPauses && g_shown == before; ++i) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

void prepare_stacks() noexcept {
  void* frame;
  (void)backtrace(&frame, 1);
  struct sigaction action {};
  action.sa_handler = show_own;
  action.sa_flags = SA_RESTART;
  sigaction(kSignal, &action, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct sigaction fault {};
  fault.sa_sigaction = show_fault;
  fault.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);  // and then the usual end
  sigaction(SIGSEGV, &fault, nullptr);
  sigaction(SIGBUS, &fault, nullptr);
#endif
}

void show_stacks() noexcept {
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(8) char entries[4096];
  long n = 0;
  while ((n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < n;) {
      unsigned short len = 0;
      // linux_dirent64: inode and offset, then d_reclen, type and name.
      std::memcpy(&len, entries + at + 16, sizeof len);
      const int thread = std::atoi(entries + at + 19);
      if (thread > 0) show(thread);
      at += len;
    }
  }
  close(folder);
}

}  // namespace hydrant::stale
