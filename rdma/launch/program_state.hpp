// The kernel's state of a program that becomes the supervisor of its copies (GASNET_PSHM_NODES). Timers go on
// in every rank, where fork(2) would end them; the supervisor keeps no timer, handler, lock of memory,
// priority, limit or descriptor of the program.
//
// Threads: one, the only one of the process.
#pragma once

#include <csignal>
#include <cstdint>
#include <span>
#include <sys/time.h>

namespace hydrant::launch {

class ProgramState {
 public:
  // Stops the interval timers, and takes back their signals that are pending.
  ProgramState() noexcept;
  // Gives the timers and signals back, unless give_up() was called: no job has started.
  ~ProgramState() { give_back(); }
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  // In a rank, with the program's signal mask: the timers go on with the time that was left, and pending
  // signals of timers are pending again.
  void give_back() noexcept;

  // In the supervisor. `own`: its descriptors, which stay open, as do 2, those of files that the program has
  // locked by fcntl(2), and all of them where the program has other threads.
  void give_up(std::span<const int> own, bool has_threads) noexcept;

 private:
  static constexpr int kTimers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
  static constexpr int kSignals[] = {SIGALRM, SIGVTALRM, SIGPROF};

  bool is_kept_ = true;
  uint64_t stopped_ns_ = 0;
  itimerval left_[3] = {};
  bool is_pending_[3] = {};
};

}  // namespace hydrant::launch
