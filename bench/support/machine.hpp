// Cores, threads pinned to them, and clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <time.h>
#include <vector>

namespace hydrant::bench {

// The cores that this process was allowed to use when it started.
inline const std::vector<int>& usable_cores() {
  static const std::vector<int> cores = [] {
    std::vector<int> found;
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) found.push_back(i);
    }
    if (found.empty()) found.push_back(0);
    return found;
  }();
  return cores;
}

// 1, 2, 4, ... and all cores.
inline std::vector<int> thread_counts() {
  const int cores = static_cast<int>(usable_cores().size());
  std::vector<int> counts;
  for (int n = 1; n < cores; n *= 2) counts.push_back(n);
  counts.push_back(cores);
  return counts;
}

// Binds the calling thread to the index-th usable core during this object's lifetime.
class OnCore {
 public:
  explicit OnCore(int index) {
    const auto& cores = usable_cores();
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(cores[static_cast<size_t>(index) % cores.size()]), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;
  ~OnCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// The calling thread's processor time.
inline uint64_t thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace hydrant::bench
