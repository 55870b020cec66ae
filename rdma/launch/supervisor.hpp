// The parent process of a job's ranks on one machine: it forks them, replies to their requests, detects how
// each ends, and ends the others. One thread and one event loop, which sleeps until a socket, a signal or a
// deadline is ready. It never blocks on a rank.
//
// hydrant-run executes a program in each child. With GASNET_PSHM_NODES the children return from
// open_bootstrap() and the process that called it stays here.
//
// A rank is a child process or a descendant of it (a shell script that runs the program). The descendant that
// sends hello counts as the rank, too, and is ended together with the child.
//
// A child gets SIGKILL when its supervisor ends, for whatever reason.
#pragma once

#include "firehose/base/machine/oom_kills.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/bootstrap/wire.hpp"
#include "rdma/exit/job_termination.hpp"
#include "rdma/launch/bootstrap_server.hpp"

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

namespace hydrant::launch {

struct SupervisorOptions {
  const char* program = "hydrant";  // prefix of its messages
  Rank size = 1;
  uint64_t timeout_ns = 0;  // for the whole job; 0: none
  bool has_threads =
      false;  // other threads of this process, to which the kernel may give its signals
  bool verbose = false;
};

class Supervisor final : public ReplySender {
 public:
  // Takes over the signals of this process. Errors: kBadArg: invalid size; kResource: too few descriptors
  // (the text has the number needed and the limit), or the system refuses a call that run() needs.
  static Status create(const SupervisorOptions& options,
                       std::unique_ptr<Supervisor>* supervisor) noexcept;
  ~Supervisor();

  // Forks rank `rank`; call it for 0, 1, 2 and so on. The child gets its original signals and limits back and
  // must destroy the object. kFailed, with a text: no more processes or descriptors, or it cannot be watched.
  enum class Side : uint32_t { kParent, kChild, kFailed };
  Side start(Rank rank, RankSockets* ends) noexcept;

  // Serves until every rank has ended; returns the job's exit code.
  int run() noexcept;
  // Kills and reaps the ranks that were started. Waits 10 s at most.
  void abandon() noexcept;

  // All that it has open.
  std::vector<int> descriptors() const noexcept;

  // Writes one line to standard error, after the program's name.
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) noexcept;

 private:
  static constexpr uint64_t kSignalTag = UINT64_MAX;  // of an epoll event: beyond those of ranks

  struct RankState {
    pid_t pid = 0;  // 0: not started, or reaped
    int calls = -1;
    int events = -1;
    int below = -1;  // pidfd of the descendant that sent hello; -1 if the child itself did
    pid_t below_pid = 0;
    bool left = false;
    bool gave_up = false;  // it was waiting for others when it left
    bool quit_sent = false;
    bool kill_sent = false;
    bool complained = false;
    bool start_failed = false;
    bool is_stop_logged = false;
    uint64_t stopped_ns = 0;
    std::vector<std::byte> unsent;  // a reply that did not fit into the socket
  };

  explicit Supervisor(const SupervisorOptions& options);
  Status prepare() noexcept;
  Status raise_descriptor_limit() noexcept;
  static sigset_t taken_signals() noexcept;
  Status take_signals() noexcept;
  void restore_signals() noexcept;
  void become_child(pid_t parent, Rank rank, RankSockets* ends) noexcept;

  void send_reply(Rank to, const Reply& reply, std::span<const std::byte> tail) noexcept override;
  void wait_for_events(uint64_t now) noexcept;
  void note_failed_wait(int error, uint64_t began_ns) noexcept;
  void handle(uint64_t tag) noexcept;
  void read_calls(Rank rank) noexcept;
  void read_words(Rank rank) noexcept;
  void flush(Rank rank) noexcept;
  void note_sender(RankState& state, pid_t pid) noexcept;
  int watch(int fd, uint64_t tag, bool reading, bool first) noexcept;
  void rewatch_calls(Rank rank, bool reading) noexcept;
  void drop(int* fd) noexcept;
  void complain(Rank rank) noexcept;
  void lose(const char* call, int error) noexcept;

  void relay_signals() noexcept;
  void read_signals() noexcept;
  void pass_on(int signal, bool children_have_it) noexcept;
  void reap() noexcept;
  void collect_dying(std::vector<siginfo_t>* seen) noexcept;
  void settle(std::vector<siginfo_t> seen) noexcept;
  void ended(Rank rank, const siginfo_t& info) noexcept;
  void exited(Rank rank, pid_t pid, int code) noexcept;
  void died(Rank rank, pid_t pid, int signal, bool dumped) noexcept;
  void left(Rank rank, int code, ExitReason how) noexcept;
  void log_rank_exit(Rank rank, int code, ExitReason how) noexcept;
  static bool is_on_its_way(const RankState& state) noexcept;
  bool must_give_up(uint64_t now) noexcept;
  void log_missing_ranks() noexcept;
  void start_failed(Rank rank, int error) noexcept;
  void check_joined() noexcept;
  void begin_end() noexcept;
  void keep_time(uint64_t now) noexcept;
  void warn_stopped(uint64_t now) noexcept;
  uint64_t next_ns() const noexcept;
  void send_signal(RankState& state, int signal) noexcept;
  void end_remaining(JobTermination::Step step) noexcept;

  const SupervisorOptions options_;
  const OomCounts oom_before_ = read_oom_counts();
  BootstrapServer server_;
  JobTermination end_;
  std::vector<RankState> ranks_;
  std::unordered_map<pid_t, Rank> by_pid_;
  uint32_t running_ = 0;
  uint32_t stopped_ = 0;
  Rank never_joined_ = kNoRank;  // a rank that exited with 0 without a hello
  pid_t never_joined_pid_ = 0;
  uint64_t job_deadline_ns_ = UINT64_MAX;
  uint64_t give_up_ns_ = UINT64_MAX;    // when killed ranks are checked again
  uint64_t last_look_ns_ = UINT64_MAX;  // when these checks end
  bool is_end_logged_ = false;  // the reason for an end that began with an exit with 0 was logged
  uint64_t stop_warn_ns_ = 0;
  uint32_t failed_waits_ = 0;  // in a row
  bool is_lost_ = false;       // a system call is refused without which nothing can be served
  int epoll_ = -1;
  int signals_ = -1;
  bool signals_taken_ = false;
  sigset_t old_mask_{};
  struct sigaction old_child_action_ {};
  rlimit old_descriptors_{};
};

}  // namespace hydrant::launch
