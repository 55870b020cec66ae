// HYDRANT_TEST_PATIENCE: the factor of all positive waits of tests, 1 if it is not set. A positive wait is
// for something that has to happen, so that only a failure pays for it.
#pragma once

#include "firehose/base/thread.hpp"
#include "tests/support/patience.h"

#include <chrono>
#include <cstdint>

namespace hydrant::testing {

inline double patience() { return hydrant_test_patience(); }

// A wait of this length on an idle machine.
inline std::chrono::nanoseconds patiently(std::chrono::nanoseconds longest) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(longest * patience());
}
inline uint64_t patient_ns(uint64_t longest) {
  return static_cast<uint64_t>(static_cast<double>(longest) * patience());
}
// A deadline for a call that succeeds.
inline uint64_t soon() { return now_ns() + patient_ns(20'000'000'000); }

}  // namespace hydrant::testing
