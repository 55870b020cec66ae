// The networks that a node's usable ports are on, and the best one that all nodes of a job have.
// rdma/ibv/network_agreement.cpp exchanges them.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/networks.hpp"
#include "rdma/ibv/device/port_rank.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace hydrant::ibv {

// A network, and the best port on it.
struct NodeNetwork {
  uint32_t rate_mbps = 0;
  PortKind kind = PortKind::kSoftware;
  NetworkId network;
  uint8_t unused[2] = {};
};

// The entry of a node in the job's store: bytes() bytes from the start of this record.
struct NodeNetworks {
  static constexpr uint32_t kVersion = 1;
  static constexpr uint32_t kMax = 32;

  uint32_t version = kVersion;
  uint16_t count = 0;
  uint16_t are_ports_named = 0;  // HYDRANT_IBV_PORTS chooses, and networks are not listed
  char host[32] = "";
  NodeNetwork all[kMax] = {};

  // Lists the networks of all usable ports; those beyond kMax are left out.
  void read_ports(const PortSettings& settings);
  void add(const PortRank& port) noexcept;
  // The best port on this network, or on those that routers may join; null if there is none.
  const NodeNetwork* find(const NetworkId& network) const noexcept;
  size_t bytes() const noexcept {
    return offsetof(NodeNetworks, all) + count * sizeof(NodeNetwork);
  }
  // Whether this can be an entry of so many bytes.
  bool is_valid(size_t entry_bytes) const noexcept;
};
static_assert(sizeof(NodeNetwork) == 24 && offsetof(NodeNetworks, all) == 40);

// Such as "b7 (rank 16) has InfiniBand fe80:: (subnet manager 3), 100 Gbit/s, and RoCE 10.1.0.0, 25 Gbit/s".
std::string text_of(const NodeNetworks& node, uint32_t leader);

// The networks that some nodes have in common, each with the worst of these nodes' best ports.
//
// Invariant: the result does not depend on the order of the nodes. RoCE networks that routers may join count
// beside each single one, because addresses do not tell whether there is a router.
class CommonNetworks {
 public:
  explicit CommonNetworks(const NodeNetworks& first) noexcept;
  // Drops what another node does not have. False: nothing is left.
  bool keep(const NodeNetworks& node) noexcept;
  // By kind, then rate, then the network itself. There is one.
  const NodeNetwork& best() const noexcept;

 private:
  void add(const NetworkId& network) noexcept;

  uint32_t count_ = 0;
  NodeNetwork all_[2 * NodeNetworks::kMax];
};

}  // namespace hydrant::ibv
