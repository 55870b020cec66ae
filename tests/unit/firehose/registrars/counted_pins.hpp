// The kernel's count of what this process has pinned, where that has the pins of io_uring.
#pragma once

#include "firehose/registrars/charge/memlock.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <string>

namespace hydrant::testing {

inline uint64_t pinned_bytes() { return read_process_bytes("VmPin"); }

// Linux 7.2 does not count them. A child finds out, because some kernels take a charge back late.
inline bool pins_are_counted() {
  static const bool are =
      run_in_child([]() -> std::string {
        const auto uring = try_uring();
        MappedPages memory(kPageBytes);
        Key key;
        const uint64_t before = pinned_bytes();
        if (uring == nullptr || uring->pin(memory.all(), Access::kAll, key.data()) != Status::kOk)
          return "no pin";
        return pinned_bytes() > before ? "" : "not counted";
      }).empty();
  return are;
}

}  // namespace hydrant::testing

#define HYDRANT_COUNTED_PINS_OR_SKIP()         \
  if (!::hydrant::testing::pins_are_counted()) \
  GTEST_SKIP() << "this kernel does not count the pins of io_uring (VmPin in /proc/self/status)"
