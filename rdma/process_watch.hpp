// One small thread per rank that hears when the job is to end, whatever the program is doing: from our
// supervisor, or, under another launcher, from the other ranks of the node and from the kernel, and from
// ranks of other nodes as far as the launcher carries words (Bootstrap::relay()).
//
// Under another launcher the thread also ends this process if the program does not: there is no supervisor
// to do it. The times and steps are those of rdma/launch/job_end.hpp; SIGQUIT is sent only to programs that
// catch it, the others leave and exit with the job's code at that point. Under any launcher it does the same
// when this process has found out by itself that a rank is gone (lose()): then nobody else may know.
//
// The thread sleeps until there is something to say. It is named "hydrant-ctl", takes no signals, and costs
// 64 KiB of stack.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"
#include "rdma/launch/job_end.hpp"
#include "rdma/node_words.hpp"

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
    virtual void on_launcher_gone() noexcept = 0;
    // Whether SIGQUIT would reach the program's own handler. Where it would not, this process leaves and
    // exits without it: a process that has not said good-bye is a crash to some launchers.
    virtual bool program_catches_quit() noexcept;
    // The watch is about to end this process: the last moment to write out what is buffered.
    virtual void before_exit() noexcept {}

   protected:
    ~Listener() = default;
  };

  // Starts the thread. Under launchers that say nothing (Bootstrap::watch_fd() is -1) it is collective over
  // the job and holds fences. Both arguments must outlive the object.
  // Errors: those of the fence; kResource: no thread, descriptor or socket.
  static Status start(Bootstrap& bootstrap, Listener& listener, uint64_t deadline_ns,
                      std::unique_ptr<ExitWatch>* watch) noexcept;
  // Ends the thread and waits for it. Not from a callback.
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // Says to everybody who can be told that this process ends the job with `code`: use this in place of
  // Bootstrap::leave(). Never waits longer than the deadline. Any thread, callbacks included, once.
  void leave(int code, uint64_t deadline_ns) noexcept;

  // The network says that `rank` is gone: the watch ends this process as if that rank had left with `code`,
  // unless the program ends first. The listener is not told. Never waits. Any thread; the first call counts.
  void lose(Rank rank, int code) noexcept;

 private:
  ExitWatch(Bootstrap& bootstrap, Listener& listener) noexcept;
  Status start_thread() noexcept;
  static void* serve(void* self);
  void serve_launcher() noexcept;
  void serve_words() noexcept;
  void heed_launcher(bool* more) noexcept;
  void heed_words() noexcept;
  void heed_relayed() noexcept;
  void heed_process(NodeWords::Peer& peer) noexcept;
  void heed_parent() noexcept;
  void heed_loss() noexcept;
  int time_left_ms() const noexcept;
  void end_myself(launch::JobEnd::Step step) noexcept;

  Bootstrap& bootstrap_;
  Listener& listener_;
  std::unique_ptr<NodeWords> words_;  // null where the launcher speaks
  std::atomic<bool> stop_{false};     // written before wake_ is, read after it was
  std::atomic<bool> left_{false};     // this process has left, or is about to
  std::atomic<Rank> lost_{kNoRank};   // set after lost_code_, before wake_ is written
  std::atomic<int> lost_code_{0};
  launch::JobEnd end_;  // the thread's; with words_, or after lose()
  int parent_ = -1;     // pidfd of whoever started this process; with words_ only
  int wake_ = -1;
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace hydrant
