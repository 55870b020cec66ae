// Computes arrival times on the injected network from one rank to another: transfers leave one after the
// other at the given bandwidth, and arrive a delay later. With reorder=TIME, a random extra delay puts ranks
// out of order.
//
// Arithmetic only; times are those of now_ns(). The same calls return the same times. Threads: one at a time.
#pragma once

#include "rdma/injected/injected_settings.hpp"

#include <algorithm>
#include <cstdint>

namespace hydrant {

class InjectedLink {
 public:
  InjectedLink() = default;
  InjectedLink(const InjectedNetwork& network, uint64_t from, uint64_t to) noexcept
      : delay_ns_(network.delay_ns),
        reorder_ns_(network.reorder_ns),
        ns_per_byte_(network.bytes_per_second == 0
                         ? 0
                         : 1e9 / static_cast<double>(network.bytes_per_second)),
        state_(network.seed * 0x9e3779b97f4a7c15 + (from << 32 | to)) {}

  // Returns the arrival time of `bytes` that are ready to be sent at `ready`.
  uint64_t send(uint64_t ready, uint64_t bytes) noexcept {
    occupy(ready, bytes);
    return free_ns_ + delay_ns_ + (reorder_ns_ != 0 ? random() % reorder_ns_ : 0);
  }
  // Occupies the link for `bytes`, without an arrival time.
  void occupy(uint64_t ready, uint64_t bytes) noexcept {
    free_ns_ = std::max(free_ns_, ready) +
               static_cast<uint64_t>(static_cast<double>(bytes) * ns_per_byte_);
  }
  uint64_t delay_ns() const noexcept { return delay_ns_; }

 private:
  // splitmix64.
  uint64_t random() noexcept {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t delay_ns_ = 0;
  uint64_t reorder_ns_ = 0;
  double ns_per_byte_ = 0;
  uint64_t free_ns_ = 0;
  uint64_t state_ = 0;
};

}  // namespace hydrant
