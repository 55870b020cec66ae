// What a process of another group needs to connect to this one: its card and which rank of which group it is.
// It travels over a path of the application's own, so nothing in it is believed until it is decoded.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/ibv_wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

struct GroupCard {
  Rank rank = 0;   // in its group
  Rank ranks = 0;  // of its group
  Card card;       // with its group
};

// Of a process with so many rails beside the first port.
constexpr size_t group_card_bytes(uint32_t rail_count) noexcept {
  return 24 + card_bytes(rail_count);
}
inline constexpr size_t kMostGroupCardBytes = group_card_bytes(kMostRails - 1);
// Writes group_card_bytes().
void encode_group_card(const GroupCard& card, std::byte* out) noexcept;
// Errors: kBadArg, with a text that says what is wrong. *card is unchanged on failure.
Status decode_group_card(std::span<const std::byte> in, GroupCard* card) noexcept;

}  // namespace hydrant::ibv
