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
  endpoint.address.nonce = nonce_;
  endpoint.address.datagram_queue = datagram_queue_;
  endpoint.address.lid = port_.lid;
  endpoint.address.mtu = static_cast<uint8_t>(port_.mtu);
  endpoint.address.is_ethernet = port_.is_ethernet ? 1 : 0;
  endpoint.address.gid = port_.gid;
  endpoint.address.needs_grh = port_.needs_grh ? 1 : 0;
  endpoint.address.gid_version = port_.gid_version;
  endpoint.address.reads_in = reads_accepted(port_);
  endpoint.connection_parameters = connection_parameters();
  endpoint.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) {
    const Port& port = rails_[i].port;
    endpoint.rails[i] = {.gid = port.gid,
                         .lid = port.lid,
                         .mtu = static_cast<uint8_t>(port.mtu),
                         .is_ethernet = static_cast<uint8_t>(port.is_ethernet ? 1 : 0),
                         .needs_grh = static_cast<uint8_t>(port.needs_grh ? 1 : 0),
                         .gid_version = port.gid_version,
                         .reads_in = reads_accepted(port)};
  }
  return endpoint;
}

}  // namespace hydrant::ibv
