// Fills in the address vector by which a port's packets get to a peer's port: for connected queue pairs and
// for datagrams.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace hydrant::ibv {

// A port of a peer, as its endpoint address describes it.
struct RemotePort {
  ibv_gid gid = {};
  uint16_t lid = 0;
  bool needs_grh = false;
};
inline RemotePort remote_port(const DatagramAddress& address) noexcept {
  return {address.gid, address.lid, address.needs_grh != 0};
}
inline RemotePort remote_port(const RailAddress& address) noexcept {
  return {address.gid, address.lid, address.needs_grh != 0};
}

// The packets have a global header (GRH) if either port demands one.
ibv_ah_attr address_of(const Port& port, const RemotePort& there) noexcept;

// Why packets of the port cannot get to a peer's port with this link layer, GID and version of it; null: they
// can, as far as the addresses show.
const char* why_unreachable(const Port& port, bool is_ethernet, const ibv_gid& gid,
                            uint8_t gid_version) noexcept;

}  // namespace hydrant::ibv
