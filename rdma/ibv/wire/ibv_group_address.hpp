// The group address, by which a process of another group connects to this one: its endpoint address, its rank
// and its group. The application carries it, so decode_group_address() checks everything in it.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant::ibv {

struct GroupAddress {
  Rank rank = 0;             // rank within its group
  Rank ranks = 0;            // ranks of the group
  EndpointAddress endpoint;  // endpoint, group number included
};

// The length of the group address of a process with `rail_count` rails.
constexpr size_t group_address_bytes(uint32_t rail_count) noexcept {
  return 24 + endpoint_bytes(rail_count);
}
inline constexpr size_t kMaxGroupAddressBytes = group_address_bytes(kMaxRails - 1);
// Writes group_address_bytes().
void encode_group_address(const GroupAddress& endpoint, std::byte* out) noexcept;
// Errors: kBadArg, with the fault in the text. *endpoint is unchanged on failure.
Status decode_group_address(std::span<const std::byte> in, GroupAddress* endpoint) noexcept;

}  // namespace hydrant::ibv
