// Reads from pidfds and /proc how a process that is no child has ended, and when a process was started.
// exit_watch.cpp reports ends with it; the shm registrar identifies processes by their start times.
#include "rdma/exit/process_exit.hpp"

#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Copy of the struct in <linux/pidfd.h> from Linux 6.15 on; the header of Debian 12 is older.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t pid;
  uint32_t tgid;
  uint32_t ppid;
  uint32_t ids[8];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kInfoExit = 1u << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

constexpr int kStateField = 3;
constexpr int kFlagsField = 9;
constexpr int kThreadsField = 20;
constexpr int kStartField = 22;
constexpr int kExitCodeField = 52;

struct Stat {
  char state = '\0';
  unsigned flags = 0;
  int threads = 0;
  uint64_t start = 0;
  int exit_code = 0;
};

// Reads fields 3 and up of a stat file; the name in field 2 may contain any character.
bool read_stat_file(const char* path, Stat* stat) noexcept {
  char text[1024];
  if (read_small_file(path, text, sizeof text) == 0) return false;
  const char* at = std::strrchr(text, ')');
  for (int field = kStateField; at != nullptr && field <= kExitCodeField; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) return false;
    if (field == kStateField) stat->state = at[1];
    if (field == kFlagsField) std::sscanf(at, "%u", &stat->flags);
    if (field == kThreadsField) std::sscanf(at, "%d", &stat->threads);
    if (field == kStartField) std::sscanf(at, "%lu", &stat->start);
    if (field == kExitCodeField) std::sscanf(at, "%d", &stat->exit_code);
  }
  return at != nullptr;
}

bool read_stat(pid_t pid, Stat* stat) noexcept {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  return read_stat_file(path, stat);
}

bool is_exiting(const Stat& stat) noexcept {
  constexpr unsigned kExiting = 4;  // PF_EXITING of the kernel's task flags
  return (stat.flags & kExiting) != 0;
}

// Checks all threads: after pthread_exit(3) of the first thread alone, the process's own stat looks as if it
// were exiting.
bool all_threads_exit(pid_t pid) noexcept {
  char path[96];
  std::snprintf(path, sizeof path, "/proc/%d/task", static_cast<int>(pid));
  DIR* tasks = opendir(path);
  if (tasks == nullptr) return true;  // the process has ended meanwhile
  bool all = true;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    Stat stat;
    std::snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", static_cast<int>(pid),
                  entry->d_name);
    if (read_stat_file(path, &stat)) all = all && is_exiting(stat);
  }
  closedir(tasks);
  return all;
}

ProcessExit from_wait_status(int status) noexcept {
  if (WIFSIGNALED(status)) return {ProcessExit::Kind::kKilled, WTERMSIG(status)};
  return {ProcessExit::Kind::kExited, WEXITSTATUS(status)};
}

}  // namespace

int open_pidfd(pid_t pid) noexcept { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

uint64_t process_start_time(pid_t pid) noexcept {
  Stat stat;
  return read_stat(pid, &stat) ? stat.start : 0;
}

bool process_is_ending(pid_t pid) noexcept {
  Stat stat;
  if (!read_stat(pid, &stat) || !is_exiting(stat)) return false;
  return stat.threads <= 1 || all_threads_exit(pid);
}

bool can_see_process_exits() noexcept { return process_start_time(getpid()) != 0; }

ProcessExit read_process_end(int pidfd, pid_t pid, uint64_t start_time) noexcept {
  constexpr uint64_t kPatienceNs = 20'000'000;
  const uint64_t deadline = now_ns() + kPatienceNs;
  for (;;) {
    PidfdInfo info{};
    info.mask = kInfoExit;
    if (ioctl(pidfd, kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0) {
      return from_wait_status(info.exit_code);
    }
    Stat stat;
    const bool zombie = read_stat(pid, &stat) && stat.start == start_time &&
                        (stat.state == 'Z' || stat.state == 'X');
    if (zombie) return from_wait_status(stat.exit_code);
    if (now_ns() >= deadline) return {};
    uncancelled::sleep_ns(1'000'000);
  }
}

}  // namespace hydrant
