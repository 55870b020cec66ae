// Waits between looks at a condition that another thread makes true: yields first, then sleeps a little
// longer each time.
#pragma once

#include "firehose/base/cancellation.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cstdint>
#include <sched.h>

namespace hydrant {

class Pause {
 public:
  explicit Pause(uint64_t timeout_ns) noexcept : timeout_ns_(timeout_ns) {}
  // False when the time is up.
  bool again() noexcept {
    if (timeout_ns_ == 0) return false;
    const uint64_t now = now_ns();
    if (tries_++ < kYields) {
      sched_yield();
      if (now_ns() - now > kCrowdedYieldNs) {
        tries_ = kYields;
        sleep_ns_ = kCrowdedSleepNs;
      }
      return true;
    }
    if (begun_ns_ == 0) begun_ns_ = now;
    if (now - begun_ns_ >= timeout_ns_) return false;
    uncancelled::sleep_ns(sleep_ns_);
    sleep_ns_ = std::min(2 * sleep_ns_, kMaxSleepNs);
    return true;
  }

 private:
  static constexpr int kYields = 16;
  static constexpr uint64_t kMinSleepNs = 20'000;
  static constexpr uint64_t kMaxSleepNs = 2'000'000;
  // A yield that takes longer shows that other threads need the processor. Many waiters that poll often would
  // leave no time to the threads that they wait for.
  static constexpr uint64_t kCrowdedYieldNs = 20'000;
  static constexpr uint64_t kCrowdedSleepNs = 100'000;

  const CancellationDisabled guard_;
  const uint64_t timeout_ns_;
  uint64_t begun_ns_ = 0;
  int tries_ = 0;
  uint64_t sleep_ns_ = kMinSleepNs;
};

}  // namespace hydrant
