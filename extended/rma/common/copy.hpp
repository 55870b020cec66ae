// Copies between mapped memories. Sizes up to two words are one or two loads and stores, so that a put
// of an aligned word is one store. Larger sizes use memmove, because a rank may put within itself. The
// C library decides about non-temporal stores; docs/decisions/0020-put-get.md compares alternatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant {

namespace detail {
// Copies `bytes` bytes, one to two words, by their first and last word; both are the same if `bytes` is a
// word.
template <typename Word>
inline void copy_ends(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  Word first;
  Word last;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + bytes - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  if (bytes != sizeof(Word)) std::memcpy(to + bytes - sizeof last, &last, sizeof last);
}
}  // namespace detail

inline void copy_bytes(void* to, const void* from, size_t bytes) noexcept {
  auto* dest = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes > 16) {
    std::memmove(dest, source, bytes);
  } else if (bytes >= 8) {
    detail::copy_ends<uint64_t>(dest, source, bytes);
  } else if (bytes >= 4) {
    detail::copy_ends<uint32_t>(dest, source, bytes);
  } else if (bytes >= 2) {
    detail::copy_ends<uint16_t>(dest, source, bytes);
  } else if (bytes == 1) {
    *dest = *source;
  }
}

}  // namespace hydrant
