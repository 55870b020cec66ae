// Ranks ports. ibv_port_choice.cpp calls it where HYDRANT_IBV_PORTS names none.
#include "rdma/ibv/device/port_rank.hpp"

#include <cstdio>
#include <cstring>

namespace hydrant::ibv {
namespace {

// mlx5_2 is lower than mlx5_10.
bool is_lower_name(const PortRank& first, const PortRank& second) noexcept {
  const size_t first_length = std::strlen(first.name);
  const size_t second_length = std::strlen(second.name);
  if (first_length != second_length) return first_length < second_length;
  const int order = std::strcmp(first.name, second.name);
  return order != 0 ? order < 0 : first.number < second.number;
}

}  // namespace

NetworkId network_of(const Port& port) noexcept {
  if (!port.is_ethernet) return infiniband_network(port.gid, port.manager_lid);
  NetworkId network = ethernet_network(port.gid, NetworkInterfaces());
  if (port.gid_version == 1) network.bytes[0] = NetworkId::kRoceVersion1;
  return network;
}

PortRank rank_of(const Port& port, uint32_t distance) noexcept {
  PortRank rank;
  rank.kind = port.posts_by_call ? PortKind::kSoftware
              : port.is_ethernet ? PortKind::kRoce
                                 : PortKind::kInfiniBand;
  rank.rate_mbps = port.rate_mbps;
  rank.network = network_of(port);
  rank.distance = distance;
  std::snprintf(rank.name, sizeof rank.name, "%s", port.name);
  rank.number = port.number;
  return rank;
}

PortOrder compare(const PortRank& first, const PortRank& second) noexcept {
  if (first.kind != second.kind) return {first.kind < second.kind, PortTrait::kKind};
  if (first.rate_mbps != second.rate_mbps)
    return {first.rate_mbps > second.rate_mbps, PortTrait::kRate};
  if (first.network != second.network) return {first.network < second.network, PortTrait::kNetwork};
  if (first.distance != second.distance)
    return {first.distance < second.distance, PortTrait::kDistance};
  return {is_lower_name(first, second), PortTrait::kName};
}

std::string rate_text(uint32_t mbps) {
  if (mbps == 0) return "not known";
  char text[32];
  std::snprintf(text, sizeof text, "%g Gbit/s", mbps / 1000.0);
  return text;
}

}  // namespace hydrant::ibv
