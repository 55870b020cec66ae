// The clock of a trace: the time-stamp counter where it is steady, else CLOCK_MONOTONIC. Ticks become
// nanoseconds when a record is formatted, by the anchor next to it: a pair of readings that each drain
// takes. An anchor is as exact as CLOCK_MONOTONIC, which all processes of a node share.
#pragma once

#include <cstdint>

namespace hydrant {

class TraceClock {
 public:
  // Constant after start(), which runs before the first event.
  static uint64_t ticks() noexcept {
#if defined(__x86_64__)
    if (uses_tsc_) [[likely]]
      return __builtin_ia32_rdtsc();
#endif
    return monotonic_ns();
  }

  // `tsc_is_steady`: the counter advances at one constant rate on all processors.
  void start(bool tsc_is_steady) noexcept;
  // Takes an anchor. Waits until 2 ms have passed since start(): the rate would be inexact.
  void anchor() noexcept;
  // Nanoseconds since start(); 0 for an earlier time. Requires an anchor.
  uint64_t ns_of(uint64_t ticks) const noexcept;
  // Nanoseconds of that many ticks.
  uint64_t ns_in(uint64_t ticks) const noexcept {
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_per_tick_);
  }
  // CLOCK_REALTIME at start(), to put traces of several machines in relation.
  uint64_t realtime_of_start_ns() const noexcept { return realtime_start_ns_; }

 private:
  struct Reading {
    uint64_t ticks = 0;
    uint64_t ns = 0;
  };
  static uint64_t monotonic_ns() noexcept;
  static Reading read_both() noexcept;

  static bool uses_tsc_;
  Reading first_;
  Reading last_;
  double ns_per_tick_ = 1;
  uint64_t realtime_start_ns_ = 0;
};

}  // namespace hydrant
