// Receives handshakes: connects the peers that send them, creates those that are new, and tells a process
// that cannot be connected why. Nothing is kept about such a process: each of its handshakes is answered
// anew.
//
// Threads: under the contact lock.
#pragma once

#include "firehose/base/log.hpp"
#include "rdma/ibv/connection/handshake_sender.hpp"
#include "rdma/ibv/connection/joined_groups.hpp"
#include "rdma/ibv/connection/peer_connector.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstdint>

namespace hydrant::ibv {

class HandshakeServer {
 public:
  HandshakeServer(const HandshakeParts& parts, PeerConnector& connector, const JoinedGroups& groups,
                  HandshakeSender& sender) noexcept
      : parts_(parts), connector_(connector), groups_(groups), sender_(sender) {}

  // Handles a datagram that has arrived; null: it is no handshake. False: it was ignored.
  bool receive(const Handshake* handshake) noexcept;

 private:
  // Bounds what a storm of handshakes can cost a process that refuses them.
  static constexpr uint32_t kRefusalsPerSecond = 1000;

  Rank sender_of(const Handshake& handshake) noexcept;
  void connect(const Handshake& handshake, Rank from, uint64_t now) noexcept;
  bool connect_pairs(Peer& peer, const Handshake& handshake) noexcept;
  bool may_refuse(uint64_t now) noexcept;
  void refuse(const Handshake& handshake, Rank from, Refusal why, uint64_t now) noexcept;
  void take_refusal(const Handshake& handshake, Peer* peer, uint64_t now) noexcept;

  const HandshakeParts& parts_;
  PeerConnector& connector_;
  const JoinedGroups& groups_;
  HandshakeSender& sender_;
  uint64_t second_ns_ = 0;  // since when refusals_ counts
  uint32_t refusals_ = 0;
  RateLimit refused_here_{RateLimit::kSecond};
  RateLimit refused_there_{RateLimit::kSecond};
};

}  // namespace hydrant::ibv
