// Runs the event loop of the supervisor: sockets, signals, ends of ranks and deadlines. run() is called once
// all ranks are forked.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/system_calls.hpp"
#include "rdma/exit/process_exit.hpp"
#include "rdma/launch/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::launch {
namespace {

constexpr int kEventsAtOnce = 64;

int pidfd_of(pid_t pid) noexcept {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // pidfds are close-on-exec
}

pid_t supervising_thread = 0;

// In a thread of the program: hands the signal to the thread that reads the signalfd, where it is blocked.
void hand_over(int signal, siginfo_t* info, void*) {
  const int error = errno;
  siginfo_t copy{};
  copy.si_signo = signal;
  copy.si_code = SI_QUEUE;  // the kernel takes no code of its own from another thread
  copy.si_pid = getpid();
  copy.si_value.sival_int = info->si_code;
  syscall(SYS_rt_tgsigqueueinfo, copy.si_pid, supervising_thread, signal, &copy);
  errno = error;
}

}  // namespace

// The kernel gives a signal of the process to any thread that has not blocked it. The program's threads have
// not, and would ignore the end of a rank, and end the process at a signal that is to be passed on.
void Supervisor::relay_signals() noexcept {
  supervising_thread = static_cast<pid_t>(syscall(SYS_gettid));
  struct sigaction action {};
  action.sa_sigaction = hand_over;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  const sigset_t taken = taken_signals();
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&taken, signal) == 1) sigaction(signal, &action, nullptr);
  }
  reap();  // the ranks whose end a thread has ignored by now
}

int Supervisor::run() noexcept {
  if (options_.has_threads) relay_signals();
  while (running_ > 0 && !is_lost_) {
    const uint64_t now = now_ns();
    if (end_.must_give_up(now)) break;
    wait_for_events(now);
    keep_time(now_ns());
  }
  if (is_lost_) {
    abandon();
    return end_.code() != 0 ? end_.code() : 1;
  }
  // Descendants that sent hello may outlive their child.
  for (const SupervisedRank& state : ranks_) {
    if (state.below >= 0) state.send_signal(SIGKILL);
  }
  end_.log_missing_ranks();
  return end_.code();
}

uint64_t Supervisor::next_ns() const noexcept {
  uint64_t next = std::min(server_.next_ns(), end_.next_ns());
  if (stopped_ == 0 || stop_warn_ns_ == 0) return next;
  for (const SupervisedRank& state : ranks_) {
    if (state.stopped_ns != 0 && !state.is_stop_logged) {
      next = std::min(next, state.stopped_ns + stop_warn_ns_);
    }
  }
  return next;
}

void Supervisor::wait_for_events(uint64_t now) noexcept {
  const uint64_t next = next_ns();
  int timeout_ms = -1;
  if (next != UINT64_MAX) {
    constexpr uint64_t kMillisecond = 1'000'000;
    constexpr uint64_t kMax = 3'600'000;
    const uint64_t left = next > now ? (next - now + kMillisecond - 1) / kMillisecond : 0;
    timeout_ms = static_cast<int>(std::min(left, kMax));
  }
  epoll_event events[kEventsAtOnce];
  const int count = uncancelled::epoll_wait(epoll_, events, kEventsAtOnce, timeout_ms);
  if (count < 0) return note_failed_wait(errno, now);
  failed_waits_ = 0;
  // Signals last, so that messages of a rank are handled before its death.
  bool signalled = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kSignalTag) {
      signalled = true;
    } else {
      handle(events[i].data.u64);
    }
  }
  if (signalled) read_signals();
}

// A stop of this process interrupts a wait, so that only failures at once are counted.
void Supervisor::note_failed_wait(int error, uint64_t began_ns) noexcept {
  if (now_ns() - began_ns >= kPauseNs) failed_waits_ = 0;
  if (!may_pass(error) || ++failed_waits_ == kMaxAttempts) return lose("epoll_wait()", error);
  pause_briefly();
}

void Supervisor::lose(const char* call, int error) noexcept {
  if (is_lost_) return;
  is_lost_ = true;
  options_.say("cannot supervise the job any more: %s: %s%s; its processes are killed", call,
               errno_text(error), remedy(error));
}

void Supervisor::handle(uint64_t tag) noexcept {
  const Rank rank = static_cast<Rank>(tag / 2);
  if (tag % 2 == 1) return read_words(rank);
  if (!ranks_[rank].unsent.empty()) return flush(rank);
  read_calls(rank);
}

// 0, or an errno.
int Supervisor::watch(int fd, uint64_t tag, bool reading, bool first) noexcept {
  epoll_event event{.events = reading ? EPOLLIN : EPOLLOUT, .data = {.u64 = tag}};
  return attempt(
      [&] { return epoll_ctl(epoll_, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event); });
}

void Supervisor::rewatch_calls(Rank rank, bool reading) noexcept {
  const int error = watch(ranks_[rank].calls, uint64_t{rank} * 2, reading, false);
  if (error != 0) lose("epoll_ctl()", error);
}

void Supervisor::drop(int* fd) noexcept {
  if (*fd < 0) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, *fd, nullptr);
  uncancelled::close(*fd);
  *fd = -1;
}

void Supervisor::complain(Rank rank) noexcept {
  if (ranks_[rank].complained) return;
  ranks_[rank].complained = true;
  options_.say("rank %u (pid %d) sent a malformed message; such messages are ignored", rank,
               static_cast<int>(ranks_[rank].pid));
}

// Reads a single message, so that a rank that sends continuously cannot starve the others.
void Supervisor::read_calls(Rank rank) noexcept {
  SupervisedRank& state = ranks_[rank];
  if (state.calls < 0) return;
  MessageRoom room;
  std::span<const std::byte> message;
  int pid = 0;
  switch (receive_message(state.calls, &room, &message, &pid)) {
    case Received::kNothing: return;
    case Received::kEnd:  // the death of the process is handled separately
      return drop(&state.calls);
    case Received::kMessage: break;
  }
  Request request;
  std::span<const std::byte> entry;
  if (!read_request(message, &request, &entry)) return complain(rank);
  const uint32_t joined = server_.joined_count();
  server_.take(rank, request, entry, now_ns());
  if (server_.joined_count() == joined) return;
  note_sender(state, pid);
  end_.check_joined();
}

void Supervisor::note_sender(SupervisedRank& state, pid_t pid) noexcept {
  if (pid <= 0 || pid == state.pid) return;
  state.below = pidfd_of(pid);
  state.below_pid = pid;
}

void Supervisor::read_words(Rank rank) noexcept {
  SupervisedRank& state = ranks_[rank];
  MessageRoom room;
  std::span<const std::byte> message;
  while (state.events >= 0) {
    switch (receive_message(state.events, &room, &message)) {
      case Received::kNothing: return;
      case Received::kEnd: return drop(&state.events);
      case Received::kMessage: break;
    }
    Event event;
    const bool is_event = read_event(message, &event);
    if (is_event && event.kind == EventKind::kLeave) {
      left(rank, event.code, event.how);
    } else if (is_event && event.kind == EventKind::kStartFailure) {
      end_.start_failed(rank, event.code);
    } else {
      complain(rank);
    }
  }
}

void Supervisor::send_reply(Rank to, const Reply& reply, std::span<const std::byte> tail) noexcept {
  SupervisedRank& state = ranks_[to];
  if (state.calls < 0) return;
  if (!state.unsent.empty())
    return;  // the rank sent a new request before it read the reply: it has cancelled that call
  if (send_message(state.calls, bytes_of(reply), tail) != EAGAIN) return;
  const auto head = bytes_of(reply);
  state.unsent.assign(head.begin(), head.end());
  state.unsent.insert(state.unsent.end(), tail.begin(), tail.end());
  rewatch_calls(to, false);
}

void Supervisor::flush(Rank rank) noexcept {
  SupervisedRank& state = ranks_[rank];
  const int error = send_message(state.calls, state.unsent);
  if (error == EAGAIN) return;
  state.unsent.clear();
  if (error != 0) return drop(&state.calls);
  rewatch_calls(rank, true);
}

void Supervisor::read_signals() noexcept {
  for (bool is_first = true;; is_first = false) {
    signalfd_siginfo info;
    const ssize_t bytes = uncancelled::read(signals_, &info, sizeof info);
    if (bytes < 0 && !may_pass(errno)) return lose("read() from a signalfd", errno);
    if (bytes != sizeof info) {
      if (!is_first) return;
      // The signal that was reported cannot be read now, and may be the end of a rank.
      reap();
      return pause_briefly();
    }
    const bool is_relayed =
        info.ssi_code == SI_QUEUE && info.ssi_pid == static_cast<uint32_t>(getpid());
    const int code = is_relayed ? info.ssi_int : info.ssi_code;
    // A timer of timer_create(2) that the program had made before it became a supervisor.
    if (code == SI_TIMER) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap();
    } else {
      // A terminal sends the signal to the whole process group, so the ranks have it already.
      end_.pass_on(signal, code == SI_KERNEL && signal != SIGALRM);
    }
  }
}

void Supervisor::keep_time(uint64_t now) noexcept {
  server_.expire(now);
  end_.keep_time(now);
  warn_stopped(now);
}

void Supervisor::reap() noexcept {
  std::vector<siginfo_t> seen;
  bool failed = false;
  int error = 0;
  for (;;) {
    siginfo_t info{};
    error = attempt([&] {
      return uncancelled::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
    });
    if (error != 0 || info.si_pid == 0) break;
    failed = failed || (info.si_code == CLD_EXITED && info.si_status != 0);
    seen.push_back(info);
  }
  if (failed) collect_dying(&seen);
  settle(std::move(seen));
  // Without a child (ECHILD) all ranks have been settled, or something else in this process has reaped one.
  if (error != 0 && running_ > 0) lose("waitid()", error);
}

// A killed rank closes its sockets first. Another rank may see that and exit before the kernel reports the
// death that caused it. So before the first failure is evaluated, this waits for ranks that are already
// dying, which is short.
void Supervisor::collect_dying(std::vector<siginfo_t>* seen) noexcept {
  if (end_.has_begun()) return;
  constexpr uint64_t kPatienceNs = 100'000'000;
  const uint64_t deadline = now_ns() + kPatienceNs;
  for (const SupervisedRank& state : ranks_) {
    if (state.pid == 0 || state.left) continue;
    bool is_child = true;
    while (is_child && process_is_ending(state.pid)) {
      siginfo_t info{};
      is_child =
          uncancelled::waitid(P_PID, static_cast<id_t>(state.pid), &info, WEXITED | WNOHANG) == 0;
      if (is_child && info.si_pid != 0) seen->push_back(info);
      if (info.si_pid != 0 || now_ns() >= deadline) break;
      pause_briefly();
    }
  }
}

// Handles deaths by a signal before exits, because an exit may be a consequence of a death.
void Supervisor::settle(std::vector<siginfo_t> seen) noexcept {
  std::stable_partition(seen.begin(), seen.end(), [](const siginfo_t& info) {
    return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  });
  for (const siginfo_t& info : seen) {
    const auto known = by_pid_.find(info.si_pid);
    if (known == by_pid_.end())
      continue;  // a child that was forked before this became a supervisor
    ended(known->second, info);
  }
}

void Supervisor::ended(Rank rank, const siginfo_t& info) noexcept {
  SupervisedRank& state = ranks_[rank];
  if (state.stopped_ns != 0) --stopped_;
  state.stopped_ns = 0;
  state.is_stop_logged = false;
  if (info.si_code == CLD_STOPPED) {
    state.stopped_ns = now_ns();
    ++stopped_;
    return;
  }
  if (info.si_code == CLD_CONTINUED) return;
  read_words(rank);  // its last messages show whether it left
  const pid_t pid = state.pid;
  by_pid_.erase(pid);
  state.pid = 0;
  --running_;
  server_.forget(rank);
  drop(&state.calls);
  drop(&state.events);
  if (info.si_code == CLD_EXITED) {
    end_.exited(rank, pid, info.si_status);
  } else {
    end_.died(rank, pid, info.si_status, info.si_code == CLD_DUMPED);
  }
}

// A failure may be a consequence of a death that the kernel has not reported yet.
void Supervisor::left(Rank rank, int code, ExitReason how) noexcept {
  ranks_[rank].left = true;
  ranks_[rank].gave_up = how == ExitReason::kAbandoned;
  if (code != 0) {
    std::vector<siginfo_t> dying;
    collect_dying(&dying);
    settle(std::move(dying));
  }
  end_.left(rank, code, how);
}

void Supervisor::abandon() noexcept {
  for (const SupervisedRank& state : ranks_) state.send_signal(SIGKILL);
  const uint64_t deadline = now_ns() + JobEnd::kGiveUpNs;
  for (SupervisedRank& state : ranks_) {
    while (state.pid != 0 && uncancelled::waitpid(state.pid, nullptr, WNOHANG) == 0 &&
           now_ns() < deadline) {
      pause_briefly();
    }
    state.pid = 0;
  }
  running_ = 0;
}

void Supervisor::warn_stopped(uint64_t now) noexcept {
  if (stopped_ == 0 || stop_warn_ns_ == 0) return;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    SupervisedRank& state = ranks_[rank];
    if (state.stopped_ns == 0 || state.is_stop_logged || now < state.stopped_ns + stop_warn_ns_)
      continue;
    state.is_stop_logged = true;
    options_.say(
        "rank %u (pid %d) has been stopped for %.3g s; the job waits for it (kill -CONT %d goes "
        "on)",
        rank, static_cast<int>(state.pid), static_cast<double>(now - state.stopped_ns) / 1e9,
        static_cast<int>(state.pid));
  }
}

}  // namespace hydrant::launch
