// Connects this side's queue pairs for a peer with those that its handshake names, and describes them in
// handshakes to that peer.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/log.hpp"
#include "rdma/ibv/connection/node_adapters.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/put_fences.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

namespace hydrant::ibv {

class PeerConnector {
 public:
  PeerConnector(const Options& options, const Ports& ports, const OwnEndpoint& own,
                const Rails& rails, const NodeAdapters& node_adapters, PutFences& fences) noexcept
      : options_(options),
        ports_(ports),
        own_(own),
        rails_(rails),
        node_adapters_(node_adapters),
        fences_(fences) {}

  // Connects with the queue pairs in `handshake`. A rail that cannot be connected is left out. Errors:
  // those of connect_queue_pair() for the first port, and of PutFences::set_up().
  Status connect(Peer& peer, const Handshake& handshake) noexcept;
  // Builds a handshake to the peer. `group`: this process's group, used for a peer of another group.
  Handshake describe(const Peer& peer, uint64_t group) const noexcept;
  // Records which rails can be used: those that both sides have connected.
  void learn_rails(Peer& peer, const Handshake& handshake) noexcept;
  // True: this side needs no more handshakes from the peer.
  static bool is_handshake_done(const Peer& peer) noexcept {
    return peer.state.is_open() && (peer.rails == nullptr || peer.rails->is_known);
  }

 private:
  void connect_rails(Peer& peer, const Handshake& handshake) noexcept;
  void describe_rails(const Peer& peer, Handshake* handshake) const noexcept;

  const Options& options_;
  const Ports& ports_;
  const OwnEndpoint& own_;
  const Rails& rails_;
  const NodeAdapters& node_adapters_;
  PutFences& fences_;
  RateLimit rail_limit_{RateLimit::kSecond};
};

}  // namespace hydrant::ibv
