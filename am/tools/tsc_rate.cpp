// Measures the rate of the time-stamp counter, or reads it from GASNET_TSC_RATE or /proc/cpuinfo, and
// checks the error against the tolerances. Called by timers.cpp.
#include "am/tools/tsc_rate.hpp"

#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/misc.h>
#include <hydrant/gasnet/timers.h>

#include "am/tools/clock.hpp"
#include "am/tools/console.hpp"
#include "am/tools/numbers.hpp"
#include "am/tools/settings.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <strings.h>

namespace hydrant {
namespace {

constexpr double kMinHz = 1e6;
constexpr double kMaxHz = 1e11;
constexpr uint64_t kIntervalNs = 10'000'000;
constexpr int kIntervals = 10;         // maximum number of intervals, while the error is too large
constexpr double kTolerance = 0.0005;  // the tolerance of GASNet's own timer test
constexpr double kHardTolerance = 0.02;
constexpr int kReadings = 10;

struct Tolerances {
  double soft;
  double hard;
  // The stricter of the active (nonzero) tolerances, or 0.
  double aim() const noexcept {
    if (soft > 0 && hard > 0) return std::min(soft, hard);
    return std::max(soft, hard);
  }
};

double read_tolerance(const char* variable, double otherwise) noexcept {
  const char* const text = hydrant_tools_getenv(variable);
  double value = otherwise;
  const bool is_set = text != nullptr && *text != '\0';
  if (is_set && (!parse_double(text, &value) || !(value >= 0 && value <= 1))) {
    report_invalid(variable, text, "a number from 0 (off) to 1");
    value = otherwise;
  }
  hydrant_tools_envdbl_display(variable, value, is_set ? 0 : 1);
  return value;
}

void judge(double error, const Tolerances& allowed, const char* what) noexcept {
  if (allowed.hard > 0 && error > allowed.hard) {
    hydrant_tools_fatalerror_nopos(
        "%s on %s: the relative error %g exceeds GASNET_TSC_RATE_HARD_TOLERANCE, %g. Set "
        "GASNET_TSC_RATE=clock to use the system's clock",
        what, hydrant_tools_gethostname(), error, allowed.hard);
  }
  if (allowed.soft > 0 && error > allowed.soft) {
    console_message("WARNING",
                    "%s on %s: the relative error %g exceeds GASNET_TSC_RATE_TOLERANCE, %g", what,
                    hydrant_tools_gethostname(), error, allowed.soft);
  }
}

struct Measurement {
  double ns_per_count;
  double error;  // relative upper bound
};

Measurement measure(const TscSample& first, double aim) noexcept {
  Measurement best{1, 1};
  for (int interval = 1; interval <= kIntervals; ++interval) {
    const uint64_t until = first.ns + static_cast<uint64_t>(interval) * kIntervalNs;
    for (uint64_t now = clock_ns(CLOCK_MONOTONIC_RAW); now < until;
         now = clock_ns(CLOCK_MONOTONIC_RAW)) {
      (void)hydrant_tools_nsleep(until - now);
    }
    const TscSample last = sample_tsc();
    const auto counts = static_cast<double>(last.tsc - first.tsc);
    if (!(counts > 0)) continue;
    best.ns_per_count = static_cast<double>(last.ns - first.ns) / counts;
    best.error = static_cast<double>(first.uncertainty + last.uncertainty) / counts;
    if (best.error <= aim) break;
  }
  return best;
}

// The kernel writes a point in every locale.
double leading_number(std::string_view text) noexcept {
  double number = 0;
  (void)take_double(text.data(), &number);
  return number;
}

// Finds "model name : ... @ 2.30GHz", else "cpu MHz : 2300.000"; 0 if neither exists.
double hz_of_cpuinfo() noexcept {
  double named_hz = 0;
  double current_hz = 0;
  for_each_line("/proc/cpuinfo", [&](std::string_view line) noexcept {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    if (line.starts_with("model name")) {
      const size_t at = line.find('@', colon);
      if (at != std::string_view::npos && line.find("GHz", at) != std::string_view::npos)
        named_hz = leading_number(line.substr(at + 1)) * 1e9;
    } else if (line.starts_with("cpu MHz")) {
      current_hz = leading_number(line.substr(colon + 1)) * 1e6;
    }
    return true;
  });
  return named_hz > 0 ? named_hz : current_hz;
}

}  // namespace

TscSample sample_tsc() noexcept {
  // Takes the tightest of several readings, because interruptions widen the others.
  TscSample best{0, 0, UINT64_MAX};
  for (int i = 0; i < kReadings; ++i) {
    const uint64_t before = read_tsc();
    const uint64_t ns = clock_ns(CLOCK_MONOTONIC_RAW);
    const uint64_t after = read_tsc();
    if (after - before < best.uncertainty)
      best = {before + (after - before) / 2, ns, after - before};
  }
  return best;
}

RateSetting read_rate_setting() noexcept {
  const char* const text = hydrant_tools_getenv_withdefault("GASNET_TSC_RATE", "walltime");
  if (strcasecmp(text, "walltime") == 0 || strcasecmp(text, "wallclock") == 0) {
    return {RateSource::kMeasured, 0};
  }
  if (strcasecmp(text, "cpuinfo") == 0) return {RateSource::kCpuinfo, 0};
  if (strcasecmp(text, "clock") == 0) return {RateSource::kNoTsc, 0};
  const ParsedInteger parsed = parse_integer(text, 0);
  const auto hz = static_cast<double>(parsed.value);
  if (*parsed.rest != '\0' || hz < kMinHz || hz > kMaxHz) {
    return {RateSource::kMeasured, 0, *text != '\0' ? text : nullptr};
  }
  return {RateSource::kGiven, hz};
}

double ns_per_count(const TscSample& first, const RateSetting& setting) noexcept {
  if (setting.invalid != nullptr) {
    report_invalid("GASNET_TSC_RATE", setting.invalid,
                   "walltime, cpuinfo, clock, or counts per second from 1000000 to 100000000000 "
                   "without a unit");
  }
  const bool is_verbose = read_switch("GASNET_TSC_VERBOSE", false);
  const Tolerances allowed{read_tolerance("GASNET_TSC_RATE_TOLERANCE", kTolerance),
                           read_tolerance("GASNET_TSC_RATE_HARD_TOLERANCE", kHardTolerance)};
  double result = 0;
  if (setting.source == RateSource::kMeasured) {
    const Measurement measured = measure(first, allowed.aim());
    judge(measured.error, allowed, "Measuring the time-stamp counter");
    result = measured.ns_per_count;
    if (is_verbose) console_message("TICKS", "relative error at most %g", measured.error);
  } else {
    const double hz = setting.source == RateSource::kGiven ? setting.hz : hz_of_cpuinfo();
    if (!(hz >= kMinHz && hz <= kMaxHz)) {
      hydrant_tools_fatalerror_nopos("GASNET_TSC_RATE=cpuinfo: /proc/cpuinfo contains no rate");
    }
    result = 1e9 / hz;
    if (allowed.aim() > 0) {
      const double measured = measure(first, allowed.aim()).ns_per_count;
      judge(std::fabs(result / measured - 1), allowed, "The rate of GASNET_TSC_RATE");
    }
  }
  if (is_verbose) {
    console_message("TICKS", "%.6f MHz, measured in %.1f ms", 1e3 / result,
                    static_cast<double>(clock_ns(CLOCK_MONOTONIC_RAW) - first.ns) * 1e-6);
  }
  return result;
}

}  // namespace hydrant
