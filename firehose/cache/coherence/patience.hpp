// How long a pin waits for releases of memory under way in other threads, before it does without the cache.
//
// A wait is worth its time if it mostly succeeds. Where threads release memory all the time there is no
// moment without a release under way, and each wait is lost. So each failure halves the next wait, and each
// success doubles it again.
//
// Invariant: the wait is kMaxNs divided by a power of two, or a single look.
//
// Threads: any. The value is a hint; a lost update costs a wait of another length.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hydrant {

class Patience {
 public:
  static constexpr uint64_t kMaxNs = 5'000'000;

  // 0: look once, do not wait.
  uint64_t ns() const noexcept {
    const uint32_t halvings = halvings_.load(std::memory_order_relaxed);
    return halvings < kMaxHalvings ? kMaxNs >> halvings : 0;
  }

  void note(bool succeeded) noexcept {
    const uint32_t halvings = halvings_.load(std::memory_order_relaxed);
    if (succeeded && halvings == 0) return;  // the usual case writes nothing
    halvings_.store(succeeded ? halvings - 1 : std::min(halvings + 1, kMaxHalvings),
                    std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kMaxHalvings = 8;  // 20 us: one turn of the monitor's own waiting
  std::atomic<uint32_t> halvings_{0};
};

}  // namespace hydrant
