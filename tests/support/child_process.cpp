// Forks or clones a child, runs the body, and returns its report through a pipe with a deadline.
#include "tests/support/child_process.hpp"

#include "tests/support/recording_registrar.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// Exit code of a child that reported; distinguishes it from a crash or an exit() inside the body.
constexpr int kReported = 42;

[[noreturn]] void report_and_leave(const std::function<std::string()>& body, int pipe) {
  const std::string text = body();
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  _exit(kReported);
}

#if defined(__SANITIZE_ADDRESS__)
// True if all other threads of this process sleep in the kernel.
bool others_sleep() {
  const std::string own = std::to_string(syscall(SYS_gettid));
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (task.path().filename() == own) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    // The state follows the name, which is in parentheses and may contain any character.
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.compare(name_end, 3, ") S") != 0) return false;
  }
  return true;
}
#endif

// A child inherits AddressSanitizer's allocator as other threads have locked it: threads that have just
// started are inside it. Not beyond the deadline: some tests keep threads busy.
void wait_for_other_threads() {
#if defined(__SANITIZE_ADDRESS__)
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!others_sleep() && std::chrono::steady_clock::now() < end) usleep(1000);
#endif
}

// Reads until the child's end is closed; false at the deadline.
bool read_report(int pipe, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + patiently(kDeadline);
  char buffer[512];
  while (std::chrono::steady_clock::now() < end) {
    pollfd ready{pipe, POLLIN, 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    const ssize_t n = read(pipe, buffer, sizeof buffer);
    if (n <= 0) return true;
    text.append(buffer, static_cast<size_t>(n));
  }
  return false;
}

// A user id that no other test has until this process and its children are over: each user has an account
// of locked memory. It is taken by a socket's name, which all processes see and none leaves behind. 0: none.
uid_t take_user() {
  constexpr uid_t kFirst = 50000;
  constexpr uid_t kUsers = 10000;
  const int taken = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (uid_t i = 0; i < kUsers && taken >= 0; ++i) {
    const uid_t id = kFirst + (static_cast<uid_t>(getpid()) + i) % kUsers;
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length =
        std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "test-user-%u", id);
    const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length);
    if (bind(taken, reinterpret_cast<const sockaddr*>(&name), static_cast<socklen_t>(bytes)) == 0)
      return id;
  }
  return 0;
}

}  // namespace

std::string run_in_child(const std::function<std::string()>& body, ChildKind kind) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe() failed";
  std::fflush(nullptr);
  if (kind != ChildKind::kForkAtOnce) wait_for_other_threads();
  const auto pid = static_cast<pid_t>(
      kind == ChildKind::kRawClone ? syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0)
                                   : fork());
  if (pid < 0) return "cannot create the child";
  if (pid == 0) {
    close(ends[0]);
    report_and_leave(body, ends[1]);
  }
  close(ends[1]);
  std::string text;
  const bool in_time = read_report(ends[0], text);
  close(ends[0]);
  if (!in_time) kill(pid, SIGKILL);
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return "waitpid() failed";
  if (!in_time) return "the child did not end in time; its report: " + text;
  if (WIFSIGNALED(status))
    return "the child was killed by " + std::string(strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != kReported) {
    return "the child exited with " + std::to_string(WEXITSTATUS(status)) + ": " + text;
  }
  return text;
}

std::string become_ordinary_user(uint64_t memlock_bytes) {
  if (geteuid() != 0) return "not root: cannot change the user id";
  const rlimit limit{memlock_bytes, memlock_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "setrlimit: " + std::string(strerror(errno));
  const uid_t id = take_user();
  if (id == 0) return "no user id is free";
  if (setgroups(0, nullptr) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) {
    return "cannot become user " + std::to_string(id) + ": " + strerror(errno);
  }
  return "";
}

}  // namespace hydrant::testing
