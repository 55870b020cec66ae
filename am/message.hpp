// How an Active Message looks on a transport: the tag, and what stands in the head before the payload.
// docs/wire_format_am.md draws it. Both ends run the same build, so only positions and sizes are checked.
#pragma once

#include "rdma/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant {

enum class Category : uint32_t { kShort = 0, kMedium = 1, kLong = 2 };

inline constexpr uint32_t kMaxArgs = 16;

// 24 bits: handler 8, number of arguments 5, category 2, deposit 1.
struct Tag {
  uint32_t handler = 0;
  uint32_t nargs = 0;
  Category category = Category::kShort;
  // A Long whose payload travels in the message, for the receiver to put into its memory; handler 0: a
  // piece of one, and nobody is called.
  bool deposit = false;

  constexpr uint32_t pack() const noexcept {
    return handler | nargs << 8 | static_cast<uint32_t>(category) << 13 |
           static_cast<uint32_t>(deposit) << 15;
  }
  static constexpr Tag unpack(uint32_t bits) noexcept {
    return {.handler = bits & 0xff,
            .nargs = (bits >> 8) & 0x1f,
            .category = static_cast<Category>((bits >> 13) & 3),
            .deposit = ((bits >> 15) & 1) != 0};
  }
};

// Bytes before the arguments: nothing; the payload's length; or that and the destination.
constexpr uint32_t args_offset(Category category) noexcept {
  return category == Category::kShort ? 0 : category == Category::kMedium ? 4 : 12;
}
constexpr uint32_t head_bytes(Category category, uint32_t nargs) noexcept {
  return args_offset(category) + 4 * nargs;
}
// Where a payload behind the head begins: transports put heads at 8 modulo 16, and payloads are aligned
// to 16.
constexpr uint32_t payload_offset(Category category, uint32_t nargs) noexcept {
  return ((head_bytes(category, nargs) + 8 + 15) & ~15u) - 8;
}

inline void write_args(std::byte* head, Category category, uint32_t nargs,
                       const int32_t* args) noexcept {
  std::byte* to = head + args_offset(category);
  for (uint32_t i = 0; i < nargs; ++i) std::memcpy(to + size_t{4} * i, args + i, 4);
}
inline void write_length(std::byte* head, Category category, uint32_t bytes) noexcept {
  std::memcpy(head + (category == Category::kLong ? 8 : 0), &bytes, 4);
}
inline uint32_t read_length(const std::byte* head, Category category) noexcept {
  uint32_t bytes = 0;
  std::memcpy(&bytes, head + (category == Category::kLong ? 8 : 0), 4);
  return bytes;
}
inline void write_dest(std::byte* head, uintptr_t dest) noexcept { std::memcpy(head, &dest, 8); }
inline uintptr_t read_dest(const std::byte* head) noexcept {
  uintptr_t dest = 0;
  std::memcpy(&dest, head, 8);
  return dest;
}

static_assert(head_bytes(Category::kLong, kMaxArgs) <= Transport::kMaxHeadBytes);

}  // namespace hydrant
