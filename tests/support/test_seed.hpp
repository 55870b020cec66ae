// The seed of a test that draws random operations.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace hydrant::testing {

// HYDRANT_TEST_SEED, or else always the same, so that a verdict does not depend on luck: ./test --full draws
// a new one. Printed, because it repeats a run.
inline uint64_t test_seed() {
  const char* text = std::getenv("HYDRANT_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
  std::printf("HYDRANT_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace hydrant::testing
