// Relates the time-stamp counter to CLOCK_MONOTONIC. Tracer (tracer.cpp) owns the only TraceClock.
#include "firehose/base/trace/trace_clock.hpp"

#include "firehose/base/thread.hpp"

#include <ctime>

namespace hydrant {

constinit bool TraceClock::uses_tsc_ = false;

uint64_t TraceClock::monotonic_ns() noexcept { return now_ns(); }

// The best of a few attempts: the thread may lose its processor between the two readings.
TraceClock::Reading TraceClock::read_both() noexcept {
  constexpr int kAttempts = 5;
  Reading best;
  uint64_t best_gap = UINT64_MAX;
  for (int i = 0; i < kAttempts; ++i) {
    const uint64_t before = ticks();
    const uint64_t ns = monotonic_ns();
    const uint64_t gap = ticks() - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    best = {.ticks = before + gap / 2, .ns = ns};
  }
  return best;
}

void TraceClock::start(bool tsc_is_steady) noexcept {
  uses_tsc_ = tsc_is_steady;
  first_ = last_ = read_both();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  realtime_start_ns_ =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void TraceClock::anchor() noexcept {
  constexpr uint64_t kShortestNs = 2'000'000;
  do {
    last_ = read_both();
  } while (last_.ns - first_.ns < kShortestNs);
  if (uses_tsc_ && last_.ticks > first_.ticks) {
    ns_per_tick_ =
        static_cast<double>(last_.ns - first_.ns) / static_cast<double>(last_.ticks - first_.ticks);
  }
}

uint64_t TraceClock::ns_of(uint64_t ticks) const noexcept {
  const auto since = static_cast<int64_t>(ticks - last_.ticks);
  const auto ns = static_cast<int64_t>(last_.ns - first_.ns) +
                  static_cast<int64_t>(static_cast<double>(since) * ns_per_tick_);
  return ns > 0 ? static_cast<uint64_t>(ns) : 0;
}

}  // namespace hydrant
