#include "rdma/launch/job_end.hpp"

#include "firehose/base/config.hpp"

#include <algorithm>

namespace hydrant::launch {
namespace {

constexpr int kSignalBase = 128;   // as shells have it
constexpr int kTimeoutCode = 124;  // as timeout(1) has it
constexpr int kCodeMask = 0xff;    // what wait(2) passes on

}  // namespace

ExitTimes exit_times(uint32_t ranks) noexcept {
  ExitTimes times;
  times.kill_ns = knob_number(Knob::kGasnetExitTimeout);
  if (times.kill_ns == 0) {
    // An hour per rank at most: the product fits in 64 bits.
    const uint64_t computed = knob_number(Knob::kGasnetExitTimeoutMin) +
                              ranks * knob_number(Knob::kGasnetExitTimeoutFactor);
    times.kill_ns = std::min(computed, knob_number(Knob::kGasnetExitTimeoutMax));
  }
  times.quit_ns = std::min(times.quit_ns, times.kill_ns);
  return times;
}

bool JobEnd::begin(Cause cause, Rank rank, int code, uint64_t now) noexcept {
  if (code_ == 0) code_ = code;
  if (begun()) return false;
  cause_ = cause;
  rank_ = rank;
  quit_at_ = now + (code == 0 ? std::max(times_.quit_ns, times_.kill_ns / 2) : times_.quit_ns);
  if (cause == Cause::kRequest) quit_at_ = UINT64_MAX;
  kill_at_ = now + times_.kill_ns;
  return true;
}

bool JobEnd::leave(Rank rank, int code, uint64_t now) noexcept {
  return begin(Cause::kExit, rank, code & kCodeMask, now);
}

bool JobEnd::die(Rank rank, int signal, uint64_t now) noexcept {
  if (!begun()) signal_ = signal;
  return begin(Cause::kDeath, rank, kSignalBase + signal, now);
}

bool JobEnd::ask(int signal, uint64_t now) noexcept {
  if (!begun()) signal_ = signal;
  return begin(Cause::kRequest, kNoRank, 0, now);
}

bool JobEnd::time_out(uint64_t now) noexcept {
  return begin(Cause::kTimeout, kNoRank, kTimeoutCode, now);
}

JobEnd::Step JobEnd::step(uint64_t now) noexcept {
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

uint64_t JobEnd::next_ns() const noexcept { return std::min(quit_at_, kill_at_); }

void JobEnd::kill_now(uint64_t now) noexcept {
  if (kill_at_ != UINT64_MAX) kill_at_ = now;
}

}  // namespace hydrant::launch
