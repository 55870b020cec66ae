// Looks at memory between guards (rdma/transport/guarded_memory.hpp) without touching it.
#pragma once

#include "rdma/transport/guarded_memory.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <sys/uio.h>
#include <unistd.h>

namespace hydrant::testing {

// Whether a byte there can be read; asked of the kernel.
inline bool is_readable(const std::byte* at) {
  std::byte got{};
  const iovec local{&got, 1};
  const iovec remote{const_cast<std::byte*>(at), 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

inline void expect_guards(const Guarded& at) {
  const auto* start = reinterpret_cast<const std::byte*>(at.start);
  EXPECT_TRUE(is_readable(start) && is_readable(start + at.bytes - 1)) << at.label.what;
  for (const size_t beyond : {size_t{1}, kPage, 8 * kMiB, kMinGuardBytes}) {
    EXPECT_FALSE(is_readable(start - beyond)) << at.label.what << ' ' << beyond;
    EXPECT_FALSE(is_readable(start + at.bytes + beyond - 1)) << at.label.what << ' ' << beyond;
  }
}

}  // namespace hydrant::testing
