// How a job ends: which exit code survives, and who is asked to go when. No system call and no clock:
// the supervisor says what it saw and when, and does what it is told.
//
// The end begins with the first of these: a rank leaves (with any code), a rank dies of a signal, a rank
// exits without having left, the supervisor is asked to stop. Others then have until quit_ns before
// those that have not left get SIGQUIT, and until kill_ns before whoever is still there is killed. After
// an exit with 0 the others are probably about to do the same, and have half of kill_ns before SIGQUIT.
//
// The code: that of the first event that is not an exit with 0; 128 + signal for a signal. What a rank
// did because it was sent SIGQUIT or SIGKILL here does not count.
#pragma once

#include "rdma/bootstrap.hpp"

#include <cstdint>

namespace hydrant::launch {

struct ExitTimes {
  uint64_t quit_ns = 250'000'000;    // after the beginning of the end
  uint64_t kill_ns = 2'000'000'000;  // after the same, never before quit_ns
};

// By GASNET_EXITTIMEOUT and its _MAX, _MIN and _FACTOR.
ExitTimes exit_times(uint32_t ranks) noexcept;

class JobEnd {
 public:
  enum class Cause : uint32_t { kNone, kExit, kDeath, kRequest, kTimeout };

  explicit JobEnd(const ExitTimes& times) noexcept : times_(times) {}

  // Each answers true if this is the beginning of the end.
  bool leave(Rank rank, int code, uint64_t now) noexcept;
  bool die(Rank rank, int signal, uint64_t now) noexcept;
  // Somebody sent `signal` to the supervisor. It is passed on, and SIGQUIT would be too much.
  bool ask(int signal, uint64_t now) noexcept;
  // The time allowed for the whole job is over.
  bool time_out(uint64_t now) noexcept;

  bool begun() const noexcept { return cause_ != Cause::kNone; }
  Cause cause() const noexcept { return cause_; }
  // An exit with 0: who is ended by force may have had something to finish.
  bool peaceful() const noexcept { return cause_ == Cause::kExit && code_ == 0; }
  Rank rank() const noexcept { return rank_; }     // who began it; kNoRank if nobody of the job
  int code() const noexcept { return code_; }      // what the job ends with, as far as is known
  int signal() const noexcept { return signal_; }  // kDeath, kRequest

  // What is due now. Each is answered once.
  enum class Step : uint32_t { kNothing, kQuit, kKill };
  Step step(uint64_t now) noexcept;
  // When to ask again; UINT64_MAX if nothing is to come.
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

}  // namespace hydrant::launch
