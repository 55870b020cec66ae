// The duration of one count of the time-stamp counter in nanoseconds: measured, or set by the user.
#pragma once

#include <cstdint>

namespace hydrant {

// The value of GASNET_TSC_RATE.
enum class RateSource { kMeasured, kCpuinfo, kGiven, kNoTsc };

struct RateSetting {
  RateSource source;
  double hz = 0;                  // kGiven only
  const char* invalid = nullptr;  // the value that is none, in place of which the rate is measured
};

// Values are walltime, wallclock, cpuinfo, clock, and rates from 10^6 to 10^11 Hz.
RateSetting read_rate_setting() noexcept;

// The counter and CLOCK_MONOTONIC_RAW at one moment.
struct TscSample {
  uint64_t tsc;
  uint64_t ns;
  uint64_t uncertainty;  // maximum counts between the two readings
};
TscSample sample_tsc() noexcept;

// Nanoseconds per count. Sleeps until at least 10 ms have passed since `first`, up to 100 ms on a noisy
// machine. Errors: an error above GASNET_TSC_RATE_TOLERANCE is a warning; above ..._HARD_TOLERANCE it
// is fatal.
double ns_per_count(const TscSample& first, const RateSetting& setting) noexcept;

}  // namespace hydrant
