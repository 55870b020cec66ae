// Sizes of memory in tests.
#pragma once

#include <cstddef>

namespace hydrant::testing {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kMiB = size_t{1} << 20;

}  // namespace hydrant::testing
