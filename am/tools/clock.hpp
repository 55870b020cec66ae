// Raw access to the counters behind ticks.
#pragma once

#include <cstdint>
#include <ctime>

namespace hydrant {

inline uint64_t clock_ns(clockid_t clock) noexcept {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

inline uint64_t read_tsc() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

// True if the time-stamp counter advances at one constant rate on all processors: as reported by the
// processor, unless the kernel found otherwise. False without a counter. Cost: one cpuid, one small
// file.
bool tsc_is_steady() noexcept;

}  // namespace hydrant
