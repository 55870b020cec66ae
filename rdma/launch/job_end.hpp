// Ends a supervisor's job: evaluates how each rank ended, logs the cause, and signals the remaining ranks.
// JobTermination decides the times and the exit code.
#pragma once

#include "firehose/base/machine/oom_kills.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/bootstrap/wire.hpp"
#include "rdma/exit/job_termination.hpp"
#include "rdma/launch/bootstrap_server.hpp"

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace hydrant::launch {

struct SupervisorOptions {
  const char* program = "hydrant";  // prefix of its messages
  Rank size = 1;
  uint64_t timeout_ns = 0;  // for the whole job; 0: none
  bool has_threads =
      false;  // other threads of this process, to which the kernel may give its signals
  bool verbose = false;

  // Writes one line to standard error, after the program's name.
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) const noexcept;
};

// A rank as its supervisor sees it.
struct SupervisedRank {
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

  void send_signal(int signal) const noexcept;
  // True if the process is exiting and frees its memory; no signal can change or speed that up.
  bool is_on_its_way() const noexcept;
};

class JobEnd {
 public:
  // After SIGKILL, which only the kernel can delay so long.
  static constexpr uint64_t kGiveUpNs = 10'000'000'000;

  JobEnd(const SupervisorOptions& options, BootstrapServer& server,
         std::vector<SupervisedRank>& ranks) noexcept;

  bool has_begun() const noexcept { return end_.has_begun(); }
  int code() const noexcept { return end_.code(); }  // the job's exit code so far

  // These report an event. A rank has exited, has died, leaves, or could not execute its program.
  void exited(Rank rank, pid_t pid, int code) noexcept;
  void died(Rank rank, pid_t pid, int signal, bool dumped) noexcept;
  void left(Rank rank, int code, ExitReason how) noexcept;
  void start_failed(Rank rank, int error) noexcept;
  // The supervisor has received a signal, which the ranks get as well.
  void pass_on(int signal, bool children_have_it) noexcept;
  // Called when a rank has joined the job.
  void check_joined() noexcept;

  // Does what is due now.
  void keep_time(uint64_t now) noexcept;
  // When keep_time() or must_give_up() is to be called again; UINT64_MAX: no time is set.
  uint64_t next_ns() const noexcept;
  // True if ranks were killed and the kernel does not release them.
  bool must_give_up(uint64_t now) noexcept;
  // Logs how many ranks waited for a rank that exited with 0: such ranks end by themselves.
  void log_missing_ranks() noexcept;

 private:
  void log_rank_exit(Rank rank, int code, ExitReason how) noexcept;
  void begin_end() noexcept;
  void end_remaining(JobTermination::Step step) noexcept;

  const SupervisorOptions& options_;
  BootstrapServer& server_;
  std::vector<SupervisedRank>& ranks_;
  const OomCounts oom_before_ = read_oom_counts();
  JobTermination end_;
  Rank never_joined_ = kNoRank;  // a rank that exited with 0 without a hello
  pid_t never_joined_pid_ = 0;
  uint64_t job_deadline_ns_ = UINT64_MAX;
  uint64_t give_up_ns_ = UINT64_MAX;    // when killed ranks are checked again
  uint64_t last_look_ns_ = UINT64_MAX;  // when these checks end
  bool is_end_logged_ = false;  // the reason for an end that began with an exit with 0 was logged
};

}  // namespace hydrant::launch
