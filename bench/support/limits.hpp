// Limits of this machine on pinning, and reasons to skip rows.
#pragma once

#include "bench/support/bare_pins.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/resource.h>

namespace hydrant::bench {

// True if this process may lock any amount of memory (CAP_IPC_LOCK).
inline bool memlock_is_unlimited() {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return false;
  char line[256];
  unsigned long long capabilities = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "CapEff: %llx", &capabilities) == 1) break;
  }
  std::fclose(file);
  constexpr unsigned kCapIpcLock = 14;
  return ((capabilities >> kCapIpcLock) & 1) != 0;
}

// Bytes that this process may pin; UINT64_MAX without a limit.
inline uint64_t memlock_bytes() {
  if (memlock_is_unlimited()) return UINT64_MAX;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

// "" if this process may pin `bytes`, else the reason.
inline std::string memlock_refusal(uint64_t bytes) {
  const uint64_t limit = memlock_bytes();
  if (bytes <= limit) return "";
  return "needs " + std::to_string(bytes >> 10) +
         " KiB of locked memory, the limit (ulimit -l) is " + std::to_string(limit >> 10) + " KiB";
}

// "" if io_uring works here, else the reason.
inline std::string uring_refusal() {
  static const int error = BareRing(16).error();
  if (error == 0) return "";
  return std::string("io_uring with registered buffers: ") + std::strerror(-error);
}

}  // namespace hydrant::bench
