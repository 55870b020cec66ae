// Ranks the ports among which a process may choose: InfiniBand before RoCE before software devices, then the
// faster one, then the lower network, then the one that is nearer to the process, then the lower name.
//
// Invariant: the order of the machine's list of devices decides nothing. Ranks of a job that have ports of
// the same kinds, rates and networks choose ports of one network, wherever they run.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/networks.hpp"

#include <cstdint>
#include <string>

namespace hydrant::ibv {

enum class PortKind : uint8_t { kInfiniBand, kRoce, kSoftware };  // the best first

struct PortRank {
  PortKind kind = PortKind::kSoftware;
  uint32_t rate_mbps = 0;
  NetworkId network;
  uint32_t distance = 0;  // kUnknownDistance: not known
  char name[64] = "";
  uint8_t number = 0;
};

// The network of a port's address. That of a GID of version 1 is another one than that of version 2.
NetworkId network_of(const Port& port) noexcept;
// `distance`: that of its device.
PortRank rank_of(const Port& port, uint32_t distance) noexcept;

// The trait that decides between two ports.
enum class PortTrait : uint8_t { kKind, kRate, kNetwork, kDistance, kName };
struct PortOrder {
  bool first_is_better = false;
  PortTrait trait = PortTrait::kName;
};
PortOrder compare(const PortRank& first, const PortRank& second) noexcept;

std::string rate_text(uint32_t mbps);

}  // namespace hydrant::ibv
