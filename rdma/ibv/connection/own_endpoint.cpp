// Builds the endpoint address that the launcher distributes. Tour "first contact": the peer reads it before
// its first handshake.
#include "rdma/ibv/connection/own_endpoint.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"

#include <algorithm>
#include <sys/random.h>
#include <unistd.h>

namespace hydrant::ibv {

namespace {

PortAddress address_of(const Port& port) noexcept {
  return {.gid = port.gid,
          .lid = port.lid,
          .mtu = static_cast<uint8_t>(port.mtu),
          .is_ethernet = port.is_ethernet,
          .needs_grh = port.needs_grh,
          .gid_version = port.gid_version,
          .reads_in = reads_accepted(port),
          .order = static_cast<uint8_t>(port.order)};
}

}  // namespace

void OwnEndpoint::open(Rank self, Rank ranks) noexcept {
  self_ = self;
  ranks_ = ranks;
  if (uncancelled::getrandom(&nonce_, sizeof nonce_, GRND_NONBLOCK) != sizeof nonce_)
    nonce_ = now_ns() ^ static_cast<uint64_t>(getpid()) << 40;
  nonce_ = std::max<uint64_t>(nonce_, 1);
}

ConnectionParameters OwnEndpoint::connection_parameters() const noexcept {
  return {options_.message_bytes(), options_.cell_bytes, static_cast<uint16_t>(options_.credits),
          static_cast<uint16_t>(options_.receive_slots)};
}

EndpointAddress OwnEndpoint::address(uint32_t rails) const noexcept {
  EndpointAddress endpoint;
  endpoint.address = {address_of(port_), nonce_, datagram_queue_};
  endpoint.connection_parameters = connection_parameters();
  endpoint.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) endpoint.rails[i] = address_of(rails_[i].port);
  return endpoint;
}

}  // namespace hydrant::ibv
