// Layout of an Active Message: the tag, and the head before the payload. docs/wire_format_am.md shows
// it. All ranks run the same build, so receivers check only positions and sizes.
#pragma once

#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant {

enum class Category : uint32_t { kShort = 0, kMedium = 1, kLong = 2 };

inline constexpr uint32_t kMaxArgs = 16;

// 24 bits: handler (8), number of arguments (5), category (2), deposit (1), addressed (1), mark (7).
//
// The mark is the message's number in a trace (am/trace/trace_points.hpp), 0 if the sender does not trace.
//
// An addressed message is one between endpoints that are not both primordial. Its last argument is their
// EndpointPair, which the handler does not get.
struct Tag {
  // Added to `nargs` of an addressed message. It exceeds kMaxArgs, so that the check of the number of
  // arguments, which every message passes, also finds addressed messages.
  static constexpr uint32_t kAddressed = 1u << 8;
  static constexpr uint32_t kMarkShift = 17;

  uint32_t handler = 0;
  uint32_t nargs = 0;
  Category category = Category::kShort;
  // A Long whose payload is in the message, so that the receiver copies it to its destination. With
  // handler 0 it is one piece of a Long, and no handler runs.
  bool deposit = false;

  constexpr uint32_t pack() const noexcept {
    return handler | nargs << 8 | static_cast<uint32_t>(category) << 13 |
           static_cast<uint32_t>(deposit) << 15;
  }
  static constexpr Tag unpack(uint32_t bits) noexcept {
    return {.handler = bits & 0xff,
            .nargs = (bits >> 8) & (kAddressed | 0x1f),
            .category = static_cast<Category>((bits >> 13) & 3),
            .deposit = ((bits >> 15) & 1) != 0};
  }
  static constexpr uint32_t mark(uint32_t bits) noexcept { return bits >> kMarkShift & 0x7f; }
};

// The indices of the two endpoints of a message, a put or a get.
struct EndpointPair {
  uint16_t to = 0;    // of the peer
  uint16_t from = 0;  // of the initiator

  constexpr bool are_primordial() const noexcept { return to == 0 && from == 0; }
  constexpr int32_t pack() const noexcept {
    return static_cast<int32_t>(uint32_t{to} | uint32_t{from} << 16);
  }
  static constexpr EndpointPair unpack(int32_t word) noexcept {
    const auto bits = static_cast<uint32_t>(word);
    return {.to = static_cast<uint16_t>(bits), .from = static_cast<uint16_t>(bits >> 16)};
  }
};

// Bytes before the arguments. Short: none; Medium: the payload length; Long: the destination and the
// length.
constexpr uint32_t args_offset(Category category) noexcept {
  return category == Category::kShort ? 0 : category == Category::kMedium ? 4 : 12;
}
constexpr uint32_t head_bytes(Category category, uint32_t nargs) noexcept {
  return args_offset(category) + 4 * nargs;
}
// Offset of a payload behind the head. Transports place heads at 8 modulo 16, and payloads are aligned
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

// True if the message contains everything that its tag and its length field require, and has at most
// `most_args` arguments.
inline bool is_whole(const Tag& tag, const Incoming& message,
                     uint32_t most_args = kMaxArgs) noexcept {
  if (tag.nargs > most_args || tag.category > Category::kLong) return false;
  if (head_bytes(tag.category, tag.nargs) > message.head_room) return false;
  const bool has_payload =
      tag.category == Category::kMedium || (tag.category == Category::kLong && tag.deposit);
  if (!has_payload) return true;
  const uint32_t bytes = read_length(message.head, tag.category);
  if (message.payload != nullptr) return bytes <= message.payload_room;
  return bytes == 0 ||
         uint64_t{bytes} + payload_offset(tag.category, tag.nargs) <= message.head_room;
}

static_assert(head_bytes(Category::kLong, kMaxArgs + 1) <= MessageChannel::kMaxHeadBytes);

}  // namespace hydrant
