// Fills in the address vector by which a port's packets get to a peer's port: for connected queue pairs and
// for datagrams.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <infiniband/verbs.h>

namespace hydrant::ibv {

// The packets have a global header (GRH) if either port demands one.
ibv_ah_attr address_of(const Port& port, const PortAddress& there) noexcept;

// Why packets of the port cannot get to a peer's port; null: they can, as far as the addresses show.
const char* why_unreachable(const Port& port, const PortAddress& there) noexcept;

// Whether the port fails with this error because the node of an address does not answer ARP, or is out of
// reach at the moment, as all are while the port is down. Over Ethernet address handles and connected queue
// pairs need the node's MAC address. Finding out that it is silent takes the adapter's driver a second or
// more. keep_ours() of the port's descriptors precedes it.
bool is_silence(const Port& port, int error) noexcept;
const char* silence_text(int error) noexcept;

}  // namespace hydrant::ibv
