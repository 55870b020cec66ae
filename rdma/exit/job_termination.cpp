// Implements the state machine of a job's end. job_end.cpp feeds it events and carries out its steps.
#include "rdma/exit/job_termination.hpp"

#include "rdma/config/job_knobs.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr int kSignalBase = 128;   // convention of shells
constexpr int kTimeoutCode = 124;  // convention of timeout(1)
constexpr int kCodeMask = 0xff;    // the bits that wait(2) returns

}  // namespace

ExitTimes exit_times(uint32_t ranks) noexcept {
  ExitTimes times;
  times.kill_ns = knob_number(JobKnob::kGasnetExitTimeout);
  if (times.kill_ns == 0) {
    // The factor is at most an hour, so the product fits in 64 bits.
    const uint64_t computed = knob_number(JobKnob::kGasnetExitTimeoutMin) +
                              ranks * knob_number(JobKnob::kGasnetExitTimeoutFactor);
    times.kill_ns = std::min(computed, knob_number(JobKnob::kGasnetExitTimeoutMax));
  }
  times.quit_ns = std::min(times.quit_ns, times.kill_ns);
  return times;
}

bool JobTermination::begin(Cause cause, Rank rank, int code, uint64_t now) noexcept {
  if (code_ == 0) code_ = code;
  if (has_begun()) return false;
  cause_ = cause;
  rank_ = rank;
  quit_at_ = now + (code == 0 ? std::max(times_.quit_ns, times_.kill_ns / 2) : times_.quit_ns);
  if (cause == Cause::kRequest) quit_at_ = UINT64_MAX;
  kill_at_ = now + times_.kill_ns;
  return true;
}

bool JobTermination::leave(Rank rank, int code, uint64_t now) noexcept {
  return begin(Cause::kExit, rank, code & kCodeMask, now);
}

bool JobTermination::die(Rank rank, int signal, uint64_t now) noexcept {
  if (!has_begun()) signal_ = signal;
  return begin(Cause::kDeath, rank, kSignalBase + signal, now);
}

bool JobTermination::ask(int signal, uint64_t now) noexcept {
  if (!has_begun()) signal_ = signal;
  return begin(Cause::kRequest, kNoRank, 0, now);
}

bool JobTermination::time_out(uint64_t now) noexcept {
  return begin(Cause::kTimeout, kNoRank, kTimeoutCode, now);
}

JobTermination::Step JobTermination::step(uint64_t now) noexcept {
  if (now >= kill_at_) {
    quit_at_ = kill_at_ = UINT64_MAX;
    if (cause_ == Cause::kRequest && code_ == 0) code_ = kSignalBase + signal_;
    return Step::kKill;
  }
  if (now >= quit_at_) {
    quit_at_ = UINT64_MAX;
    return Step::kQuit;
  }
  return Step::kNothing;
}

uint64_t JobTermination::next_ns() const noexcept { return std::min(quit_at_, kill_at_); }

void JobTermination::kill_now(uint64_t now) noexcept {
  if (kill_at_ != UINT64_MAX) kill_at_ = now;
}

}  // namespace hydrant
