// Reads and writes little-endian numbers of `bytes` bytes (8 at most) at any alignment, for encoded messages
// and keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::little_endian {

inline void put(std::byte* out, uint64_t value, size_t bytes) noexcept {
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

inline uint64_t get(const std::byte* in, size_t bytes) noexcept {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(in[i]) << (8 * i);
  return value;
}

}  // namespace hydrant::little_endian
