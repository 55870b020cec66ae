// How many nanoseconds one count of the time-stamp counter takes: measured, or as the user says.
#pragma once

#include <cstdint>

namespace hydrant {

// What GASNET_TSC_RATE asks for.
enum class RateSource { kMeasured, kCpuinfo, kGiven, kNoTsc };

struct RateSetting {
  RateSource source;
  double hz;  // kGiven only
};

// Errors: a text that is none of walltime, wallclock, cpuinfo, clock or a rate from 10^6 to 10^11 is fatal.
RateSetting read_rate_setting() noexcept;

// The counter and CLOCK_MONOTONIC_RAW at one moment.
struct TscSample {
  uint64_t tsc;
  uint64_t ns;
  uint64_t uncertainty;  // counts between the two readings at most
};
TscSample sample_tsc() noexcept;

// Nanoseconds per count. Sleeps until at least 10 ms (up to ten times as long where the machine is
// noisy) have passed since `first`. Errors: beyond GASNET_TSC_RATE_TOLERANCE a warning, beyond
// ..._HARD_TOLERANCE the end of the program.
double ns_per_count(const TscSample& first, const RateSetting& setting) noexcept;

}  // namespace hydrant
