// Decides how a job ends: its exit code, and when remaining ranks get signals. No system call and no clock:
// the supervisor reports events with their times and carries out the steps.
//
// The end begins with the first of these events: a rank leaves (with any code), a rank dies of a signal, a
// rank exits without leaving, the supervisor receives a signal to stop. Ranks that have not left after
// quit_ns get SIGQUIT, and ranks that still run after kill_ns are killed. After an exit with 0 the others
// will probably exit as well, so they have half of kill_ns before SIGQUIT.
//
// The job's code is that of the first event other than an exit with 0; 128 + signal for a signal. Codes that
// result from the supervisor's own SIGQUIT or SIGKILL do not count.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

struct ExitTimes {
  uint64_t quit_ns = 250'000'000;    // measured from the first event
  uint64_t kill_ns = 2'000'000'000;  // also from the first event; at least quit_ns
};

// The times from GASNET_EXITTIMEOUT and its _MAX, _MIN and _FACTOR.
ExitTimes exit_times(uint32_t ranks) noexcept;

class JobTermination {
 public:
  enum class Cause : uint32_t { kNone, kExit, kDeath, kRequest, kTimeout };

  explicit JobTermination(const ExitTimes& times) noexcept : times_(times) {}

  // These report an event and return true if it begins the end.
  bool leave(Rank rank, int code, uint64_t now) noexcept;
  bool die(Rank rank, int signal, uint64_t now) noexcept;
  // The supervisor received `signal`. It is forwarded to the ranks, so they get no SIGQUIT.
  bool ask(int signal, uint64_t now) noexcept;
  // The time limit of the job has expired.
  bool time_out(uint64_t now) noexcept;

  bool has_begun() const noexcept { return cause_ != Cause::kNone; }
  Cause cause() const noexcept { return cause_; }
  // The end began with an exit with 0, so ranks that are killed may lose unfinished work.
  bool is_clean_exit() const noexcept { return cause_ == Cause::kExit && code_ == 0; }
  Rank rank() const noexcept {
    return rank_;
  }  // the rank whose event began the end; kNoRank if none
  int code() const noexcept { return code_; }      // the job's exit code so far
  int signal() const noexcept { return signal_; }  // kDeath, kRequest

  // The step that is due now; each step is returned once.
  enum class Step : uint32_t { kNothing, kQuit, kKill };
  Step step(uint64_t now) noexcept;
  // The time of the next step(); UINT64_MAX if no step remains.
  uint64_t next_ns() const noexcept;
  void kill_now(uint64_t now) noexcept;

 private:
  bool begin(Cause cause, Rank rank, int code, uint64_t now) noexcept;

  const ExitTimes times_;
  Cause cause_ = Cause::kNone;
  Rank rank_ = kNoRank;
  int code_ = 0;
  int signal_ = 0;
  uint64_t quit_at_ = UINT64_MAX;
  uint64_t kill_at_ = UINT64_MAX;
};

}  // namespace hydrant
