// One small thread per rank that hears when the job is to end, whatever the program is doing: from our
// supervisor, or, under another launcher, from the other ranks of the node and from the kernel, and from
// ranks of other nodes as far as the launcher carries notices (Bootstrap::forward_exit()).
//
// Under another launcher the thread also ends this process if the program does not: there is no supervisor
// to do it. The times and steps are those of rdma/launch/job_termination.hpp; SIGQUIT is sent only to
// programs that catch it, the others leave and exit with the job's code at that point. Under any launcher it
// does the same when this process has found out by itself that a rank is gone (report_peer_failure()): then
// nobody else may know.
//
// The thread sleeps until there is something to say, and looks every two seconds whether the program has
// closed the descriptors by which it hears. Those between the ranks of a node it opens again. A supervisor
// cannot be heard any more: it ends this process by SIGQUIT, where else it would have told first
// (is_unannounced_kill()). The thread is named "hydrant-ctl", takes no signals, and costs 64 KiB of stack.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/machine/oom_kills.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/exit/node_exit_channel.hpp"
#include "rdma/launch/job_termination.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

class ExitWatch {
 public:
  // What the thread calls. It may end the process from there. Each is called within 100 ms of its cause.
  class Listener {
   public:
    // `rank` ends the job with this exit code. After 0 others are probably about to do the same: give the
    // program time to finish what it prints.
    virtual void on_exit_requested(Rank rank, int code) noexcept = 0;
    // `rank` is gone without having left; 0: by which signal is not known.
    virtual void on_death(Rank rank, int signal) noexcept = 0;
    // Our supervisor is gone. Its ranks get SIGKILL then, but for those below a script.
    virtual void on_launcher_exit() noexcept = 0;
    // Whether SIGQUIT would reach the program's own handler. Where it would not, this process leaves and
    // exits without it: a process that has not said good-bye is a crash to some launchers.
    virtual bool program_catches_quit() noexcept;
    // The watch is about to end this process: the last moment to write out what is buffered.
    virtual void before_exit() noexcept {}

   protected:
    ~Listener() = default;
  };

  // Starts the thread. Under launchers that say nothing (Bootstrap::event_fd() is -1) it is collective over
  // the job and holds fences. Both arguments must outlive the object.
  // Errors: those of the fence; kResource: no thread, descriptor or socket.
  static Status start(Bootstrap& bootstrap, Listener& listener, uint64_t deadline_ns,
                      std::unique_ptr<ExitWatch>* watch) noexcept;
  // Ends the thread and waits for it: two seconds longer where the program has closed its descriptor. Not
  // from a callback.
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // Says to everybody who can be told that this process ends the job with `code`: use this in place of
  // Bootstrap::leave(). Never waits longer than the deadline. Any thread, callbacks included, once.
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept;

  // Whether a supervisor tells the user of what signal this process dies.
  bool is_supervised() const noexcept { return is_supervised_; }
  // Whether a SIGQUIT of process `sender` is how the supervisor ends this process, which could not be told
  // that the job ends: the program has closed the connection. In a signal handler, too.
  bool is_unannounced_kill(pid_t sender) const noexcept;
  // This process dies of a signal, and has told the user: the others of the node need not. In a signal
  // handler, too.
  void note_death_published() const noexcept;

  // The network says that `rank` is gone: the watch ends this process as if that rank had left with `code`,
  // unless the program ends first. The listener is not told. Never waits. Any thread; the first call counts.
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
  void end_myself(launch::JobTermination::Step step) noexcept;

  Bootstrap& bootstrap_;
  Listener& listener_;
  const bool is_supervised_;
  uint64_t supervisor_start_ = 0;             // with the pid it names the process for good
  std::unique_ptr<NodeExitChannel> channel_;  // null where the launcher speaks
  std::atomic<bool> stop_{false};             // written before wake_ is, read after it was
  std::atomic<bool> left_{false};             // this process has left, or is about to
  std::atomic<Rank> lost_{kNoRank};           // set after lost_code_, before wake_ is written
  std::atomic<int> lost_code_{0};
  const OomCounts oom_before_ = read_oom_counts();
  std::atomic<Rank> first_exited_{
      kNoRank};                 // the rank whose exit this process heard of first; with channel_
  launch::JobTermination end_;  // the thread's; with channel_, or after report_peer_failure()
  // With channel_ the process that started this one; else the supervisor, once it is not heard any more.
  pid_t parent_pid_ = 0;
  KeptDescriptor parent_;  // its pidfd
  KeptDescriptor wake_;
  bool is_notified_ = false;  // the thread's: the supervisor has said that the job ends
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace hydrant
