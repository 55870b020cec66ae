// Fills in address vectors, and compares addresses. peer_factory.cpp calls it for datagrams,
// ibv_queue_pair.cpp for connections.
#include "rdma/ibv/connection/address_vector.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>

namespace hydrant::ibv {
namespace {

constexpr uint8_t kHops = 64;  // of routed packets
constexpr size_t kPrefixBytes = 8;

bool has_prefix(const ibv_gid& gid) noexcept {
  return std::any_of(gid.raw, gid.raw + kPrefixBytes, [](uint8_t byte) { return byte != 0; });
}

bool is_unanswered(int error) noexcept { return error == ETIMEDOUT || error == EHOSTUNREACH; }

// False also if the adapter does not say.
bool is_down(const Port& port) noexcept {
  ibv_port_attr now{};
  const int error =
      uncancelled::call([&] { return ibv_query_port(port.device.context, port.number, &now); });
  return error == 0 && now.state != IBV_PORT_ACTIVE;
}

}  // namespace

ibv_ah_attr address_of(const Port& port, const PortAddress& there) noexcept {
  ibv_ah_attr address{};
  address.dlid = there.lid;
  address.port_num = port.number;
  address.sl = port.service_level;
  if (!port.needs_grh && there.needs_grh == 0) return address;
  address.is_global = 1;
  address.grh.dgid = there.gid;
  address.grh.sgid_index = port.gid_index;
  address.grh.hop_limit = kHops;
  if (port.is_ethernet) address.grh.traffic_class = port.traffic_class;
  return address;
}

const char* why_unreachable(const Port& port, const PortAddress& there) noexcept {
  const bool is_ethernet = there.is_ethernet != 0;
  if (is_ethernet != port.is_ethernet)
    return is_ethernet ? "it uses Ethernet, this process InfiniBand"
                       : "it uses InfiniBand, this process Ethernet";
  if (there.gid_version != port.gid_version)
    return port.gid_version == 2
               ? "its GID is of RoCE version 1, that of this process of version 2"
               : "its GID is of RoCE version 2, that of this process of version 1";
  // A LID is valid within its subnet only.
  const bool is_local = std::equal(there.gid.raw, there.gid.raw + kPrefixBytes, port.gid.raw);
  if (!is_ethernet && !is_local && has_prefix(there.gid) && has_prefix(port.gid))
    return "it is in another subnet";
  return nullptr;
}

bool is_silence(const Port& port, int error) noexcept {
  return error != 0 && (is_unanswered(error) || (port.is_ethernet && is_down(port)));
}

const char* silence_text(int error) noexcept {
  return is_unanswered(error) ? "its node does not answer ARP" : "the port is down";
}

}  // namespace hydrant::ibv
