// Starts a job: limits, signals, forks. hydrant-run and GASNET_PSHM_NODES call it; supervisor_loop.cpp then
// serves the ranks, and job_end.cpp ends them.
#include "rdma/launch/supervisor.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/system_calls.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::launch {
namespace {

constexpr rlim_t kOwnDescriptors =
    64;  // beside two per rank: descriptors of the program, and reserve
constexpr int kFirstFreeDescriptor = 3;

// Signals that the supervisor handles. It blocks all others, except those that stop or continue a process and
// those of its own faults.
constexpr int kTaken[] = {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2};
constexpr int kNotHeld[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV,
                            SIGBUS,  SIGFPE,  SIGILL,  SIGABRT};

// Moves a descriptor above those of stdio, which this process may have closed.
int above_stdio(int fd) noexcept {
  if (fd < 0 || fd >= kFirstFreeDescriptor) return fd;
  const int lifted = fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
  uncancelled::close(fd);
  return lifted;
}

bool make_pair(int* ours, int* theirs) noexcept {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return false;
  *ours = above_stdio(pair[0]);
  *theirs = above_stdio(pair[1]);
  return *ours >= 0 && *theirs >= 0;
}

Status refuse_to_supervise(const char* call, int error) noexcept {
  return fail(Status::kResource, "cannot supervise a job: %s: %s%s", call, errno_text(error),
              remedy(error));
}

// Tries what run() calls: ranks would wait for ever for a supervisor that cannot read or reap.
Status try_calls(int epoll, int signals) noexcept {
  epoll_event event{};
  if (const int error = attempt([&] { return uncancelled::epoll_wait(epoll, &event, 1, 0); });
      error != 0)
    return refuse_to_supervise("epoll_wait()", error);
  // A read without room takes no signal; the kernel answers it with EINVAL.
  if (uncancelled::read(signals, nullptr, 0) < 0 && errno != EINVAL && !may_pass(errno))
    return refuse_to_supervise("read() from a signalfd", errno);
  siginfo_t info{};
  const int error =
      attempt([&] { return uncancelled::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT); });
  return error == 0 || error == ECHILD ? Status::kOk : refuse_to_supervise("waitid()", error);
}

void close_if_open(int* fd) noexcept {
  if (*fd >= 0) uncancelled::close(*fd);
  *fd = -1;
}

// Standard input goes to rank 0; other ranks read end-of-file.
void take_stdin_away() noexcept {
  if (fcntl(STDIN_FILENO, F_GETFD) < 0) return;
  const int null = uncancelled::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return;
  dup2(null, STDIN_FILENO);
  uncancelled::close(null);
}

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      server_(options.size, *this),
      ranks_(options.size),
      end_(options_, server_, ranks_),
      stop_warn_ns_(knob_number(JobKnob::kStopWarn)) {}

Supervisor::~Supervisor() {
  for (SupervisedRank& state : ranks_) {
    close_if_open(&state.calls);
    close_if_open(&state.events);
    close_if_open(&state.below);
  }
  close_if_open(&epoll_);
  close_if_open(&signals_);
  restore_signals();
}

Status Supervisor::create(const SupervisorOptions& options,
                          std::unique_ptr<Supervisor>* supervisor) noexcept {
  if (options.size == 0 || options.size > kMaxRanks) {
    return fail(Status::kBadArg, "a job cannot have %u processes on this machine: use 1 to %u",
                options.size, kMaxRanks);
  }
  std::unique_ptr<Supervisor> made(new Supervisor(options));
  const Status status = made->prepare();
  if (status == Status::kOk) *supervisor = std::move(made);
  return status;
}

Status Supervisor::raise_descriptor_limit() noexcept {
  const rlim_t needed = 2 * static_cast<rlim_t>(options_.size) + kOwnDescriptors;
  if (getrlimit(RLIMIT_NOFILE, &old_descriptors_) != 0) {
    return fail(Status::kResource, "cannot read the limit of descriptors: getrlimit(): %s",
                errno_text(errno));
  }
  if (old_descriptors_.rlim_cur >= needed) return Status::kOk;
  if (old_descriptors_.rlim_max < needed) {
    const rlim_t room = old_descriptors_.rlim_max;
    const rlim_t max_ranks = room > kOwnDescriptors ? (room - kOwnDescriptors) / 2 : 0;
    char remedy[64] = "";
    if (max_ranks > 0) {
      std::snprintf(remedy, sizeof remedy, ", or start at most %llu",
                    static_cast<unsigned long long>(max_ranks));
    }
    return fail(Status::kResource,
                "a job of %u process%s needs %llu descriptors here, and the hard limit is %llu%s; "
                "raise it (ulimit -Hn, LimitNOFILE=, /etc/security/limits.conf)%s",
                options_.size, options_.size == 1 ? "" : "es",
                static_cast<unsigned long long>(needed), static_cast<unsigned long long>(room),
                max_ranks == 0 ? ", too low for a job of any size" : "", remedy);
  }
  const rlimit raised{needed, old_descriptors_.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    return fail(Status::kResource, "setrlimit(RLIMIT_NOFILE, %llu): %s",
                static_cast<unsigned long long>(needed), errno_text(errno));
  }
  return Status::kOk;
}

Status Supervisor::prepare() noexcept {
  const Status limits = raise_descriptor_limit();
  if (limits != Status::kOk) return limits;
  if (const Status signals = take_signals(); signals != Status::kOk) return signals;
  const sigset_t taken = taken_signals();
  epoll_ = above_stdio(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_ < 0) return refuse_to_supervise("epoll_create1()", errno);
  signals_ = above_stdio(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_ < 0) return refuse_to_supervise("signalfd()", errno);
  if (const int error = watch(signals_, kSignalTag, true, true); error != 0)
    return refuse_to_supervise("epoll_ctl()", error);
  return try_calls(epoll_, signals_);
}

sigset_t Supervisor::taken_signals() noexcept {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : kTaken) {
    // A signal that was ignored at startup (nohup) stays ignored, also in the ranks.
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGCHLD || action.sa_handler != SIG_IGN) sigaddset(&taken, signal);
  }
  return taken;
}

Status Supervisor::take_signals() noexcept {
  sigset_t held;
  sigfillset(&held);
  for (const int signal : kNotHeld) sigdelset(&held, signal);
  // The kernel would discard the exit statuses of children if SIGCHLD were ignored.
  struct sigaction child {};
  child.sa_handler = SIG_DFL;
  if (sigaction(SIGCHLD, &child, &old_child_action_) != 0)
    return refuse_to_supervise("rt_sigaction()", errno);
  if (const int error = pthread_sigmask(SIG_SETMASK, &held, &old_mask_); error != 0) {
    sigaction(SIGCHLD, &old_child_action_, nullptr);
    return refuse_to_supervise("rt_sigprocmask()", error);
  }
  signals_taken_ = true;
  return Status::kOk;
}

void Supervisor::restore_signals() noexcept {
  if (!signals_taken_) return;
  signals_taken_ = false;
  sigaction(SIGCHLD, &old_child_action_, nullptr);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

Supervisor::Side Supervisor::start(Rank rank, RankSockets* ends) noexcept {
  SupervisedRank& state = ranks_[rank];
  RankSockets made;
  if (!make_pair(&state.calls, &made.calls) || !make_pair(&state.events, &made.events)) {
    const int error = errno;
    static_cast<void>(fail(Status::kResource, "socketpair() for rank %u failed: %s%s", rank,
                           errno_text(error), remedy(error)));
    close_if_open(&made.calls);
    close_if_open(&made.events);
    return Side::kFailed;
  }
  const int on = 1;
  setsockopt(state.calls, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    *ends = made;
    become_child(parent, rank, ends);
    return Side::kChild;
  }
  const int error = errno;
  uncancelled::close(made.calls);
  uncancelled::close(made.events);
  if (pid < 0) {
    static_cast<void>(fail(Status::kResource, "cannot start rank %u of %u: fork(): %s%s", rank,
                           options_.size, errno_text(error),
                           error == EAGAIN
                               ? "; ulimit -u, pids.max of the cgroup and kernel.pid_max limit "
                                 "processes"
                               : remedy(error)));
    return Side::kFailed;
  }
  state.pid = pid;
  by_pid_[pid] = rank;
  ++running_;
  int refused = watch(state.calls, uint64_t{rank} * 2, true, true);
  if (refused == 0) refused = watch(state.events, uint64_t{rank} * 2 + 1, true, true);
  if (refused != 0) {
    static_cast<void>(refuse_to_supervise("epoll_ctl()", refused));
    return Side::kFailed;
  }
  if (options_.verbose) options_.say("rank %u is pid %d", rank, static_cast<int>(pid));
  return Side::kParent;
}

void Supervisor::become_child(pid_t parent, Rank rank, RankSockets* ends) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent is another process now if the supervisor died before that call.
  if (getppid() != parent) _exit(1);
  if (rank != 0) take_stdin_away();
  setrlimit(RLIMIT_NOFILE, &old_descriptors_);
  if (ends->calls < 0 || ends->events < 0) _exit(1);
}

std::vector<int> Supervisor::descriptors() const noexcept {
  std::vector<int> all = {epoll_, signals_};
  for (const SupervisedRank& state : ranks_) all.insert(all.end(), {state.calls, state.events});
  return all;
}

}  // namespace hydrant::launch
