// A lock for critical sections of a few instructions: a 32-bit flag, no queue. Waiters yield after a
// while, in case the holder has lost its processor.
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstdint>
#include <sched.h>

namespace hydrant {

// Tells the processor by one instruction that this is a spin loop.
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
