// Tells networks apart by the addresses of ports, without sending anything.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstdint>

namespace hydrant::ibv {

// Equal for ports that seem to be on one network; the order is the same on all nodes.
struct NetworkId {
  std::array<uint8_t, 17> bytes = {};

  auto operator<=>(const NetworkId&) const = default;
};

// On InfiniBand the subnet prefix and the LID of the subnet manager: two fabrics may both have the default
// prefix. On Ethernet the network of an IPv4 address by its interface's netmask (24 bits if none has it), or
// the upper half of another address. Cost: a few system calls for an IPv4 address.
NetworkId infiniband_network(const ibv_gid& gid, uint16_t manager_lid) noexcept;
NetworkId ethernet_network(const ibv_gid& gid) noexcept;

bool is_ipv4(const ibv_gid& gid) noexcept;

}  // namespace hydrant::ibv
