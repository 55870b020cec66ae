// Creates peers: memory, queue pairs, and room in the queues that peers share.
//
// Invariant: the shared receive queue and the completion queues have room for everything that the created
// peers can have under way, so none of them overflows.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/log.hpp"
#include "rdma/ibv/connection/address_handles.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/completion_queue.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/receiving.hpp"

#include <cstdint>

namespace hydrant::ibv {

class PeerFactory {
 public:
  PeerFactory(const Options& options, Ports& ports, const OwnEndpoint& own, PeerTable& peers,
              GrowingCompletionQueue& completions, Rails& rails, Receiving& receiving,
              AddressHandles& addresses) noexcept
      : options_(options),
        ports_(ports),
        own_(own),
        peers_(peers),
        completions_(completions),
        rails_(rails),
        receiving_(receiving),
        addresses_(addresses) {}

  // Whether the settings of the process agree with this one's. Errors: kBroken.
  Status check_settings(const PeerName& name, const EndpointAddress& endpoint) const noexcept;
  // Creates and publishes a peer, not connected yet, which uses a destination for its handshakes. Errors:
  // those of check_settings(); kResource: among others, those of confirm_address(); kBroken: the program has
  // closed the device. A failure leaves no trace.
  Status make(Rank rank, Rank their_rank, const EndpointAddress& endpoint, Peer** made) noexcept;
  // Why the last make() has failed, for the process that has asked to be connected.
  Refusal refusal() const noexcept { return refusal_; }

 private:
  const Port& port() const noexcept { return ports_.all[0]; }
  uint32_t receives_from(Rank rank) const noexcept;
  Status make_room(uint32_t receives) noexcept;
  Status allocate(Peer& peer, uint32_t receives) noexcept;
  Status open_queue(Peer& peer, uint32_t receives) noexcept;
  Status open_address(Peer& peer) noexcept;
  void open_rails(Peer& peer) noexcept;
  Status open_rail(Peer& peer, uint32_t index) noexcept;

  const Options& options_;
  Ports& ports_;
  const OwnEndpoint& own_;
  PeerTable& peers_;
  GrowingCompletionQueue& completions_;
  Rails& rails_;
  Receiving& receiving_;
  AddressHandles& addresses_;
  uint32_t count_ = 0;  // peers with receive buffers
  Refusal refusal_ = Refusal::kNone;
  RateLimit rail_limit_{RateLimit::kSecond};
};

}  // namespace hydrant::ibv
