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

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/bootstrap/wire.hpp"
#include "rdma/launch/bootstrap_server.hpp"
#include "rdma/launch/job_end.hpp"

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

namespace hydrant::launch {

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

 private:
  static constexpr uint64_t kSignalTag = UINT64_MAX;  // of an epoll event: beyond those of ranks

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
  void note_sender(SupervisedRank& state, pid_t pid) noexcept;
  int watch(int fd, uint64_t tag, bool reading, bool first) noexcept;
  void rewatch_calls(Rank rank, bool reading) noexcept;
  void drop(int* fd) noexcept;
  void complain(Rank rank) noexcept;
  void lose(const char* call, int error) noexcept;

  void relay_signals() noexcept;
  void read_signals() noexcept;
  void reap() noexcept;
  void collect_dying(std::vector<siginfo_t>* seen) noexcept;
  void settle(std::vector<siginfo_t> seen) noexcept;
  void ended(Rank rank, const siginfo_t& info) noexcept;
  void left(Rank rank, int code, ExitReason how) noexcept;
  void keep_time(uint64_t now) noexcept;
  void warn_stopped(uint64_t now) noexcept;
  uint64_t next_ns() const noexcept;

  const SupervisorOptions options_;
  BootstrapServer server_;
  std::vector<SupervisedRank> ranks_;
  JobEnd end_;
  std::unordered_map<pid_t, Rank> by_pid_;
  uint32_t running_ = 0;
  uint32_t stopped_ = 0;
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
