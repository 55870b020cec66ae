// Chooses the GID by which a port is addressed, from the table of the port.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/networks.hpp"

#include <cstdint>

namespace hydrant::ibv {

// Rates a GID for RoCE: higher is better, and 0 means unusable. Version 2 (routable, over UDP) is better than
// version 1. An IPv4 address is better than a global IPv6 address, and that better than a link-local one,
// which is not reachable without an interface index.
uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept;

// Traits of a GID for RoCE, the most important first. The order of the table decides only between GIDs that
// are equal in all of them: it is the order in which a node was given its addresses.
struct GidTraits {
  NetworkInterfaces::State interface = NetworkInterfaces::State::kUnknown;
  uint32_t rating = 0;  // rate_gid()
  bool is_virtual = false;
  NetworkId network = {};
};
bool is_better(const GidTraits& one, const GidTraits& other) noexcept;

// Chooses the GID at the index `wanted`, or with kAny the best one, and stores it in *port. InfiniBand needs
// none, unless the port demands global headers. `root` is put before /sys, for tests. Errors: kUnsupported.
Status choose_gid(const ibv_port_attr& attributes, uint32_t wanted, const char* root,
                  Port* port) noexcept;

}  // namespace hydrant::ibv
