// A lock for a handful of instructions: one byte-sized state, no queue. Held by a thread that loses its
// processor it would make others spin, so they yield after a while.
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstdint>
#include <sched.h>

namespace hydrant {

// One instruction that tells the processor that this is a wait.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class HYDRANT_CAPABILITY("mutex") SpinLock {
 public:
  void lock() noexcept HYDRANT_ACQUIRE() {
    for (uint32_t round = 0; held_.exchange(1, std::memory_order_acquire) != 0; ++round) {
      while (held_.load(std::memory_order_relaxed) != 0) {
        pause();
        if (++round > kSpins) sched_yield();
      }
    }
  }
  bool try_lock() noexcept HYDRANT_TSA(try_acquire_capability(true)) {
    return held_.load(std::memory_order_relaxed) == 0 &&
           held_.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() noexcept HYDRANT_RELEASE() { held_.store(0, std::memory_order_release); }

 private:
  static constexpr uint32_t kSpins = 200;
  std::atomic<uint32_t> held_{0};
};

}  // namespace hydrant
