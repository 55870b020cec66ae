// Starts a reliable queue pair on a port, and connects it with a peer's.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/connection/address_vector.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace hydrant::ibv {

// A sequence number for the first packet of a connection. It differs each time, so that late packets of an
// earlier connection are not taken for this one's.
uint32_t draw_sequence() noexcept;

// RDMA reads and atomics that a queue pair on this port accepts at once.
uint8_t reads_accepted(const Port& port) noexcept;

// Takes the queue pair to INIT, so that it can be connected. Errors: kResource.
Status start_queue_pair(ibv_qp* queue, const Port& port) noexcept;

// The local ACK timeout with which an adapter that sends a packet again `retries` times gives a peer up after
// about `patience_ns`, which is (retries + 1) * 4.096 us * 2^timeout: of all timeouts the nearest.
uint8_t timeout_for(uint64_t patience_ns, uint32_t retries) noexcept;

// Both ends of a connection.
struct QueuePairConnection {
  ibv_qp* queue = nullptr;
  const Port* port = nullptr;
  uint32_t own_sequence = 0;
  uint64_t patience_ns = 0;  // as in IbvTransport::Options
  const char* peer = "";     // its name, for errors
  PortAddress there;         // this and all below: the peer's
  uint32_t number = 0;
  uint32_t sequence = 0;
};
// Takes the queue pair to RTS, so that it can receive and send. Errors: kNotReady: the peer's node is silent,
// and the queue pair is still in INIT; kBroken.
Status connect_queue_pair(const QueuePairConnection& connection) noexcept;

}  // namespace hydrant::ibv
