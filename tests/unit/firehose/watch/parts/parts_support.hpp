// Help for tests of the monitor's parts: places in an address range that nothing is mapped at, and random
// numbers.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "tests/support/sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <random>

namespace hydrant::testing {

inline constexpr uintptr_t kPlace = 0x7f0000000000;

// `count` pages from this page of the place on.
inline MemoryRange pages(size_t first, size_t count) {
  return {kPlace + first * kPage, count * kPage};
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace hydrant::testing
