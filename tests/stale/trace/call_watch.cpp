// Watches a child's system calls with a seccomp listener and writes them to the trace.
#include "tests/stale/trace/call_watch.hpp"

#include "tests/support/patience.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace hydrant::stale {
namespace {

constexpr time_t kMaxSeconds = 240;
constexpr int kNoFilter = 88;

struct Call {
  int32_t number;
  const char* name;
};
constexpr Call kCalls[] = {
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_mremap, "mremap"},
    {SYS_madvise, "madvise"},
    {SYS_brk, "brk"},
    {SYS_shmdt, "shmdt"},
    {SYS_remap_file_pages, "remap_file_pages"},
};

// Installs the filter; answers the descriptor that reports calls, or -1 with errno.
int install_filter() {
  // For each watched call: compare, and return "notify".
  sock_filter program[2 * std::size(kCalls) + 2] = {};
  size_t n = 0;
  program[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  for (const Call& call : kCalls) {
    program[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call.number), 0, 1);
    program[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
  }
  program[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog filter{static_cast<unsigned short>(n), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

bool send_descriptor(int to, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return sendmsg(to, &message, 0) == 1;
}

// Receives a descriptor; -1 if the other side has closed without sending one.
int receive_descriptor(int from) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

[[noreturn]] void be_watched(int socket, const std::function<int()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int listener = install_filter();
  if (listener < 0 || !send_descriptor(socket, listener)) _exit(kNoFilter);
  close(listener);
  close(socket);
  _exit(body());
}

class Watcher {
 public:
  explicit Watcher(TraceLog& log) : log_(log), break_(reinterpret_cast<uintptr_t>(sbrk(0))) {}

  // Records calls until the child has ended; false at the deadline.
  bool watch(int listener, pid_t child, int* status) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const time_t end = now.tv_sec + static_cast<time_t>(kMaxSeconds * testing::patience());
    while (waitpid(child, status, WNOHANG) == 0) {
      clock_gettime(CLOCK_MONOTONIC, &now);
      if (now.tv_sec > end) return false;
      pollfd ready{listener, POLLIN, 0};
      for (int i = 0; i < 1000 && poll(&ready, 1, 20) > 0 && (ready.revents & POLLIN) != 0; ++i) {
        answer(listener);
      }
    }
    return true;
  }

 private:
  void answer(int listener) {
    seccomp_notif call{};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;  // its thread was killed
    note(static_cast<int32_t>(call.data.nr), call.data.args, static_cast<int32_t>(call.pid));
    seccomp_notif_resp response{};
    response.id = call.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }

  void note(int32_t call, const __u64* a, int32_t thread) {
    const auto add = [&](Event event, uintptr_t addr, size_t len) {
      if (len != 0) log_.add(event, {addr, len}, call, thread);
    };
    switch (call) {
      case SYS_munmap: return add(Event::kCall, a[0], a[1]);
      case SYS_mmap:
        if ((a[3] & MAP_FIXED) != 0) add(Event::kCall, a[0], a[1]);
        return;
      case SYS_madvise:
        if (a[2] == MADV_DONTNEED || a[2] == MADV_DONTNEED_LOCKED || a[2] == MADV_REMOVE) {
          add(Event::kCall, a[0], a[1]);
        }
        return;
      case SYS_mremap:
        // If the mapping grows, it may stay in place or move.
        if ((a[3] & MREMAP_FIXED) != 0) {
          add(Event::kCall, a[0], a[1]);
          add(Event::kCall, a[4], a[2]);
        } else if (a[2] < a[1]) {
          add(Event::kCall, a[0] + a[2], a[1] - a[2]);
        } else if ((a[3] & MREMAP_MAYMOVE) != 0) {
          add(Event::kMaybe, a[0], a[1]);
        }
        return;
      case SYS_brk:
        if (a[0] == 0) return;
        if (a[0] < break_) add(Event::kCall, a[0], break_ - a[0]);
        break_ = a[0];
        return;
      default: return;  // shmdt and remap_file_pages affect only shared memory, which is not kept
    }
  }

  TraceLog& log_;
  uintptr_t break_;  // the child's program break, initially that of this process
};

}  // namespace

const char* call_name(int32_t call) {
  for (const Call& known : kCalls) {
    if (known.number == call) return known.name;
  }
  return "?";
}

std::string run_watched(TraceLog& log, const std::function<int()>& body, int* status,
                        bool* refused) {
  *refused = false;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return "socketpair() failed";
  Watcher watcher(log);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return "fork() failed";
  if (child == 0) {
    close(ends[0]);
    be_watched(ends[1], body);
  }
  close(ends[1]);
  const int listener = receive_descriptor(ends[0]);
  close(ends[0]);
  int wait_status = 0;
  if (listener < 0) {
    waitpid(child, &wait_status, 0);
    *refused = true;
    return "this kernel or container refuses seccomp filters with a listener";
  }
  const bool ended = watcher.watch(listener, child, &wait_status);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &wait_status, 0);
  }
  close(listener);
  if (!ended) return "the child did not end";
  if (!WIFEXITED(wait_status))
    return "the child was killed, wait status " + std::to_string(wait_status);
  *status = WEXITSTATUS(wait_status);
  return "";
}

}  // namespace hydrant::stale
