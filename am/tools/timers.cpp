// Ticks of gasnet_tools.h. The first call selects the counter (clock.cpp); the first conversion
// determines its rate (tsc_rate.cpp).
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/timers.h>

#include "am/tools/clock.hpp"
#include "am/tools/tsc_rate.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cerrno>
#include <ctime>
#include <sys/time.h>

int hydrant_tools_ticks_are_tsc = 0;

namespace hydrant {
namespace {

// NOLINTNEXTLINE(modernize-use-using): __extension__ is for typedefs
__extension__ typedef unsigned __int128 Wide;

// Nanoseconds per tick as a multiple of 2^-52: accurate to better than 10^-12 at every rate, and the
// product with any tick count fits into 128 bits.
constexpr int kFractionBits = 52;

enum class Source : int { kUndecided, kTsc, kClock };

struct Ticks {
  Mutex mutex;
  // Stored once with release, under the mutex. An acquire load that finds it decided also sees
  // `setting` and `first`.
  std::atomic<Source> source{Source::kUndecided};
  // Stored and loaded likewise; 0 until the first conversion.
  std::atomic<uint64_t> scaled_ns{0};
  RateSetting setting{};
  TscSample first{};
};
constinit Ticks g_ticks;

Source decide() noexcept {
  const MutexLock lock(g_ticks.mutex);
  Source source = g_ticks.source.load(std::memory_order_relaxed);  // the mutex orders it
  if (source != Source::kUndecided) return source;
  g_ticks.setting = read_rate_setting();
  if (g_ticks.setting.source != RateSource::kNoTsc && tsc_is_steady()) {
    g_ticks.first = sample_tsc();
    source = Source::kTsc;
  } else {
    g_ticks.scaled_ns.store(uint64_t{1} << kFractionBits, std::memory_order_relaxed);
    source = Source::kClock;
  }
  g_ticks.source.store(source, std::memory_order_release);
  __atomic_store_n(&hydrant_tools_ticks_are_tsc, source == Source::kTsc, __ATOMIC_RELAXED);
  return source;
}

Source source() noexcept {
  const Source known = g_ticks.source.load(std::memory_order_acquire);
  return known != Source::kUndecided ? known : decide();
}

[[gnu::noinline]] uint64_t calibrate() noexcept {
  (void)source();
  const MutexLock lock(g_ticks.mutex);
  uint64_t scaled = g_ticks.scaled_ns.load(std::memory_order_relaxed);
  if (scaled == 0) {
    const double ns = ns_per_count(g_ticks.first, g_ticks.setting);
    scaled = static_cast<uint64_t>(ns * static_cast<double>(uint64_t{1} << kFractionBits));
    g_ticks.scaled_ns.store(scaled, std::memory_order_release);
  }
  return scaled;
}

struct Accuracy {
  double granularity_us;
  double overhead_us;
};

Accuracy measure_accuracy() noexcept {
  constexpr uint64_t kCalls = 1000;
  uint64_t smallest = UINT64_MAX;
  const uint64_t begin = hydrant_tools_ticks_now();
  uint64_t last = begin;
  for (uint64_t steps = 0, calls = 0; calls < kCalls || (steps == 0 && calls < 1000 * kCalls);
       ++calls) {
    const uint64_t now = hydrant_tools_ticks_now();
    if (now > last) {
      ++steps;
      if (now - last < smallest) smallest = now - last;
    }
    last = now;
  }
  // Takes the fastest of several rounds, because interruptions lengthen the others.
  uint64_t round = UINT64_MAX;
  for (int rounds = 0; rounds < 20; ++rounds) {
    const uint64_t round_begin = hydrant_tools_ticks_now();
    for (uint64_t i = 0; i < kCalls; ++i) {
      last = hydrant_tools_ticks_now();
      __asm__ __volatile__("" : : "r"(last));  // keeps the call
    }
    if (last - round_begin < round) round = last - round_begin;
  }
  const uint64_t round_ns = hydrant_tools_ticks_to_ns(round);
  const uint64_t step_ns = hydrant_tools_ticks_to_ns(smallest * kCalls);
  return {static_cast<double>(step_ns > 0 ? step_ns : 1) / (1e3 * kCalls),
          static_cast<double>(round_ns > 0 ? round_ns : 1) / (1e3 * kCalls)};
}

const Accuracy& accuracy() noexcept {
  static const Accuracy measured = measure_accuracy();
  return measured;
}

}  // namespace
}  // namespace hydrant

hydrant_tools_tick_t hydrant_tools_ticks_now_slowly(void) {
  if (hydrant::source() == hydrant::Source::kTsc) return hydrant::read_tsc();
  return hydrant::clock_ns(CLOCK_MONOTONIC);
}

uint64_t hydrant_tools_ticks_to_ns(hydrant_tools_tick_t ticks) {
  uint64_t scaled = hydrant::g_ticks.scaled_ns.load(std::memory_order_acquire);
  if (scaled == 0) scaled = hydrant::calibrate();
  return static_cast<uint64_t>(static_cast<hydrant::Wide>(ticks) * scaled >>
                               hydrant::kFractionBits);
}

uint64_t hydrant_tools_ticks_to_us(hydrant_tools_tick_t ticks) {
  return hydrant_tools_ticks_to_ns(ticks) / 1000;
}

double hydrant_tools_tick_granularityus(void) { return hydrant::accuracy().granularity_us; }

double hydrant_tools_tick_overheadus(void) { return hydrant::accuracy().overhead_us; }

uint64_t hydrant_tools_gettimeofday_us(void) {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000u + static_cast<uint64_t>(now.tv_usec);
}

int hydrant_tools_nsleep(uint64_t ns_delay) {
  if (ns_delay == 0) return 0;
  const timespec delay{static_cast<time_t>(ns_delay / 1'000'000'000u),
                       static_cast<long>(ns_delay % 1'000'000'000u)};
  return ::nanosleep(&delay, nullptr);
}
