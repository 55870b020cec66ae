// Starting a reliable queue pair on a port, and connecting it with a peer's.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace hydrant::ibv {

// A packet is sent again six times: a peer whose machine is gone is known to be after half a second, or a few
// where an adapter waits longer than it is told. Not seven: to rxe of Linux 6.1 that means for ever.
inline constexpr uint8_t kRetries = 6;
// Of routed packets.
inline constexpr uint8_t kHops = 64;

// Of the first packet: drawn, so that packets of a connection before are not taken for this one's.
uint32_t draw_sequence() noexcept;

// From here on it can be connected. Errors: kResource.
Status start_queue_pair(ibv_qp* queue, const Port& port) noexcept;

// Both ends of a connection.
struct QueuePairConnection {
  ibv_qp* queue = nullptr;
  const Port* port = nullptr;
  uint32_t own_sequence = 0;
  uint8_t timeout = 0;    // as in IbvTransport::Options
  const char* peer = "";  // what people call it
  ibv_gid gid = {};       // theirs, as all that follows
  uint16_t lid = 0;
  uint8_t mtu = 0;
  uint32_t number = 0;
  uint32_t sequence = 0;
};
// Can receive and send. Errors: kBroken.
Status connect_queue_pair(const QueuePairConnection& connection) noexcept;

}  // namespace hydrant::ibv
