// Prints the stack of each thread without allocating, when a hunt or a child of it makes no progress.
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
constexpr int kPauses = 100;  // of a millisecond each
std::atomic<int> g_shown{0};

void show_own(int) {
  void* frames[kFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
  ++g_shown;
}

// Prints the mappings that lie within a distance of the address.
void show_mappings(uintptr_t addr) {
  constexpr uintptr_t kNear = uintptr_t{1} << 20;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char line[256];
  size_t n = 0;
  char next = 0;
  while (read(fd, &next, 1) == 1) {
    if (n < sizeof line - 1) line[n++] = next;
    if (next != '\n') continue;
    line[n] = '\0';
    char* dash = nullptr;
    const uintptr_t first = std::strtoul(line, &dash, 16);
    const uintptr_t end = dash != nullptr && *dash == '-' ? std::strtoul(dash + 1, nullptr, 16) : 0;
    if (first < addr + kNear && addr < end + kNear) (void)!write(STDERR_FILENO, line, n);
    n = 0;
  }
  close(fd);
}

// Prints place, address and neighbours of a fault before it ends the program.
[[maybe_unused]] void show_fault(int signal, siginfo_t* info, void*) {
  char text[128];
  const int n =
      std::snprintf(text, sizeof text, "signal %d (code %d) in thread %ld at address %p:\n", signal,
                    info->si_code, syscall(SYS_gettid), info->si_addr);
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(n));
  show_own(0);
  show_mappings(reinterpret_cast<uintptr_t>(info->si_addr));
}

void copy_to_stderr(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[2048];
  const ssize_t n = read(fd, text, sizeof text);
  if (n > 0) (void)!write(STDERR_FILENO, text, static_cast<size_t>(n));
  close(fd);
}

void show(pid_t process, int thread) {
  char path[64];
  const int n = std::snprintf(path, sizeof path, "thread %d: ", thread);  // dprintf() allocates
  (void)!write(STDERR_FILENO, path, static_cast<size_t>(n));
  for (const char* file : {"comm", "syscall", "stack"}) {
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/%s", process, thread, file);
    copy_to_stderr(path);
  }
  const int before = g_shown;  // a child counts in memory of its own
  if (syscall(SYS_tgkill, process, thread, kSignal) != 0) return;
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
  fault.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);  // the default action follows
  sigaction(SIGSEGV, &fault, nullptr);
  sigaction(SIGBUS, &fault, nullptr);
#endif
}

void show_stacks(pid_t process) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/task", process);
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(8) char entries[4096];
  long n = 0;
  while ((n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < n;) {
      unsigned short len = 0;
      // linux_dirent64: inode and offset, then d_reclen, type and name.
      std::memcpy(&len, entries + at + 16, sizeof len);
      const int thread = std::atoi(entries + at + 19);
      if (thread > 0) show(process, thread);
      at += len;
    }
  }
  close(folder);
}

}  // namespace hydrant::stale
