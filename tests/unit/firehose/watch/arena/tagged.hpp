// Memory that is filled with marks, which identify the allocation that wrote them.
#pragma once

#include "tests/support/sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant::testing {

constexpr size_t kMarkStride = 512;

// Calls at(offset) for each mark of an allocation of `bytes` bytes: every 512 bytes, and its last 8.
template <class At>
void for_each_mark(size_t bytes, At&& at) {
  if (bytes < sizeof(uint64_t)) return;
  for (size_t offset = 0; offset + sizeof(uint64_t) <= bytes; offset += kMarkStride) at(offset);
  at(bytes - sizeof(uint64_t));
}

inline uint64_t mark(uint64_t tag, size_t offset) { return tag * 0x9e3779b97f4a7c15u + offset; }

inline void write_marks(void* p, size_t bytes, uint64_t tag) {
  for_each_mark(bytes, [&](size_t offset) {
    const uint64_t value = mark(tag, offset);
    std::memcpy(static_cast<char*>(p) + offset, &value, sizeof value);
  });
}

// True if the marks that write_marks() wrote over `bytes` are intact in the first `present` of them.
inline bool has_marks(const void* p, size_t bytes, uint64_t tag, size_t present) {
  bool good = true;
  for_each_mark(bytes, [&](size_t offset) {
    if (offset + sizeof(uint64_t) > present) return;
    // The last mark overlaps its neighbour, and was written after it.
    const size_t last = bytes - sizeof(uint64_t);
    if (offset != last && offset + sizeof(uint64_t) > last) return;
    uint64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(p) + offset, sizeof value);
    good = good && value == mark(tag, offset);
  });
  return good;
}

inline bool has_marks(const void* p, size_t bytes, uint64_t tag) {
  return has_marks(p, bytes, tag, bytes);
}

}  // namespace hydrant::testing
