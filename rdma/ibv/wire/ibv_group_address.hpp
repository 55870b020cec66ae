// What a process of another group needs to connect to this one: its endpoint address and which rank of which
// group it is. It travels over a path of the application's own, so nothing in it is believed until it is
// decoded.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

struct GroupAddress {
  Rank rank = 0;             // in its group
  Rank ranks = 0;            // of its group
  EndpointAddress endpoint;  // with its group
};

// Of a process with so many rails beside the first port.
constexpr size_t group_address_bytes(uint32_t rail_count) noexcept {
  return 24 + endpoint_bytes(rail_count);
}
inline constexpr size_t kMaxGroupAddressBytes = group_address_bytes(kMaxRails - 1);
// Writes group_address_bytes().
void encode_group_address(const GroupAddress& endpoint, std::byte* out) noexcept;
// Errors: kBadArg, with a text that says what is wrong. *endpoint address is unchanged on failure.
Status decode_group_address(std::span<const std::byte> in, GroupAddress* endpoint) noexcept;

}  // namespace hydrant::ibv
