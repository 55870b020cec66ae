// Runs one small thread per rank that learns when the job is to end, independently of the program. Its
// sources are our supervisor, or, under another launcher, the other ranks of the node and the kernel. Ranks
// of other nodes are included as far as the launcher forwards notifications (Bootstrap::forward_exit()).
//
// The thread also ends this process if the program does not, under launchers that have no supervisor.
// The times and steps are those of rdma/exit/job_termination.hpp. SIGQUIT is sent only to programs that
// catch it; other processes leave and exit with the job's code at that point. Under any launcher it does the
// same after report_peer_failure(): other processes may not know of the failure.
//
// The thread sleeps until an event arrives, and checks every two seconds whether the program has closed its
// descriptors. It reopens those between the ranks of a node. A closed connection to the supervisor cannot be
// reopened: the supervisor then ends this process by SIGQUIT without a notification (is_unannounced_kill()).
// The thread is named "hydrant-ctl", takes no signals, and costs 64 KiB of stack.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/machine/oom_kills.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/exit/job_termination.hpp"
#include "rdma/exit/node_exit_channel.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

class ExitWatch {
 public:
  // Callbacks of the thread, which may end the process. Each is called within 100 ms of its cause.
  class Listener {
   public:
    // `rank` ends the job with this exit code. After code 0 other ranks probably exit soon as well: give the
    // program time to finish its output.
    virtual void on_exit_requested(Rank rank, int code) noexcept = 0;
    // `rank` has died without leaving; `signal` is 0 if the signal is unknown.
    virtual void on_death(Rank rank, int signal) noexcept = 0;
    // Our supervisor has exited. Its ranks receive SIGKILL then, except those below a script.
    virtual void on_launcher_exit() noexcept = 0;
    // True if SIGQUIT would reach the program's own handler. If not, this process leaves and exits without
    // SIGQUIT: some launchers treat a process that exits without leaving as a crash.
    virtual bool program_catches_quit() noexcept;
    // Called before the watch ends this process: the last chance to flush buffered output.
    virtual void before_exit() noexcept {}

   protected:
    ~Listener() = default;
  };

  // Starts the thread. Under launchers that send no events (Bootstrap::event_fd() is -1) it is collective
  // over the job and holds fences. Both arguments must outlive the object.
  // Errors: those of the fence; kResource: no thread, descriptor or socket.
  static Status start(Bootstrap& bootstrap, Listener& listener, uint64_t deadline_ns,
                      std::unique_ptr<ExitWatch>* watch) noexcept;
  // Ends the thread and waits for it: two seconds longer if the program has closed its descriptor. Not to be
  // called from a callback.
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // Notifies all reachable components that this process ends the job with `code`; use it in place of
  // Bootstrap::leave(). Never waits longer than the deadline. Any thread, callbacks included, once.
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept;

  // True if a supervisor reports the signal that kills this process to the user.
  bool is_supervised() const noexcept { return is_supervised_; }
  // True if a SIGQUIT from process `sender` is the supervisor ending this process after the program has
  // closed their connection. Async-signal-safe.
  bool is_unannounced_kill(pid_t sender) const noexcept;
  // Notifies the node that this process dies of a signal and has reported it, so that no other rank reports
  // it again. Async-signal-safe.
  void note_death_published() const noexcept;

  // The network reports that `rank` has failed: the watch ends this process as if that rank had left with
  // `code`, unless the program ends first. The listener is not called. Never waits. Any thread; the first
  // call counts.
  void report_peer_failure(Rank rank, int code) noexcept;

 private:
  ExitWatch(Bootstrap& bootstrap, Listener& listener) noexcept;
  Status start_thread() noexcept;
  static void* serve(void* self);
  void serve_launcher() noexcept;
  void serve_words() noexcept;
  void handle_launcher(bool* more) noexcept;
  void handle_words() noexcept;
  void handle_relayed() noexcept;
  void handle_process(NodeExitChannel::Peer& peer) noexcept;
  void handle_unknown_exit(const NodeExitChannel::Peer& peer) noexcept;
  void handle_parent() noexcept;
  void handle_loss() noexcept;
  void repair_parent() noexcept;
  void log_unpublished() noexcept;
  void watch_supervisor() noexcept;
  void note_exit(Rank rank, int code) noexcept;
  void log_exit(int code, ExitReason how, bool is_first) noexcept;
  int time_left_ms() const noexcept;
  void end_myself(JobTermination::Step step) noexcept;

  Bootstrap& bootstrap_;
  Listener& listener_;
  const bool is_supervised_;
  uint64_t supervisor_start_ = 0;             // identifies the process together with its pid
  std::unique_ptr<NodeExitChannel> channel_;  // null if the launcher sends events
  std::atomic<bool> stop_{false};    // written before wake_ is written, read after wake_ was read
  std::atomic<bool> left_{false};    // this process has left, or is about to
  std::atomic<Rank> lost_{kNoRank};  // set after lost_code_, before wake_ is written
  std::atomic<int> lost_code_{0};
  const OomCounts oom_before_ = read_oom_counts();
  std::atomic<Rank> first_exited_{
      kNoRank};         // the first rank whose exit was received; with channel_
  JobTermination end_;  // of the thread; with channel_, or after report_peer_failure()
  // With channel_: the process that started this one. Else the supervisor, once its connection is closed.
  pid_t parent_pid_ = 0;
  KeptDescriptor parent_;  // its pidfd
  KeptDescriptor wake_;
  bool is_notified_ = false;  // of the thread: the supervisor has reported the job's end
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace hydrant
