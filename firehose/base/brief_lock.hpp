// A bounded attempt to take a mutex. Waiting without a bound could deadlock: the holder may be the thread
// that the caller's signal handler interrupted, or a thread that waits for the caller.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <sched.h>

namespace hydrant {

// Locks `mu` if it becomes free within about 0.3 ms, else returns false. For mutexes that are usually held
// for less. With `impatient` it gives up after two yields. Async-signal-safe; does not preserve errno.
inline bool lock_briefly(Mutex& mu, bool impatient = false) noexcept
    HYDRANT_TSA(try_acquire_capability(true, mu)) {
  constexpr int kYields = 16;
  constexpr int kNaps = 4;
  const int tries = impatient ? 2 : kYields + kNaps;
  for (int i = 0; i < tries; ++i) {
    if (mu.try_lock()) return true;
    if (i < kYields) {
      sched_yield();
    } else {
      uncancelled::sleep_ns(10'000);
    }
  }
  return mu.try_lock();
}

}  // namespace hydrant
