// Random numbers that are reproducible from a seed: xorshift64*, seeded by splitmix64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::stale {

constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed) | 1) {}

  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  // 0 to n-1. Requires: n > 0.
  uint32_t below(size_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  size_t between(size_t least, size_t most) { return least + below(most - least + 1); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  bool percent(uint32_t p) { return below(100) < p; }

 private:
  uint64_t state_;
};

}  // namespace hydrant::stale
