// Sends handshakes: to a new peer at once, and again until its handshake is done, or it is disconnected or
// has timed out.
//
// Invariant: a peer is timed from start() or expect() until then. Its next handshake becomes due later only
// when one has left, when the adapter has refused it, or until its silent node is asked again. What has found
// no room in the queue of datagrams, or no address handle, stays due, and the others wait behind it.
//
// Threads: under the contact lock, but for the hint.
#pragma once

#include "firehose/base/log.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/connection/address_handles.hpp"
#include "rdma/ibv/connection/datagram_queue.hpp"
#include "rdma/ibv/connection/handshake_timer.hpp"
#include "rdma/ibv/connection/joined_groups.hpp"
#include "rdma/ibv/connection/node_adapters.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"
#include "rdma/ibv/connection/peer_connector.hpp"
#include "rdma/ibv/connection/peer_factory.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/disconnector.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/put_fences.hpp"
#include "rdma/ibv/transfer/receiving.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

// The parts of the transport that first contact uses.
struct HandshakeParts {
  Bootstrap& bootstrap;
  const Options& options;
  const Ports& ports;
  OwnEndpoint& own;
  PeerTable& peers;
  AddressHandles& addresses;
  PeerFactory& factory;
  const Rails& rails;
  const NodeAdapters& node_adapters;
  PutFences& fences;
  Receiving& receiving;
  Disconnector& disconnector;
  Counters& counters;

  uint64_t now_ns() const noexcept { return options.handshakes.clock(); }
};

class HandshakeSender {
 public:
  HandshakeSender(const HandshakeParts& parts, DatagramQueue& datagrams,
                  const PeerConnector& connector, const JoinedGroups& groups) noexcept
      : parts_(parts), datagrams_(datagrams), connector_(connector), groups_(groups) {}
  // For `peers` peers. Errors: kResource.
  Status open(uint32_t peers) noexcept { return timer_.open(peers, parts_.own.nonce()); }

  // Begins with a peer that this side contacts: the first handshake leaves at once if there is room.
  void start(Peer& peer, uint64_t now) noexcept;
  // Begins with a peer that has sent a handshake, which answer() will answer.
  void expect(Peer& peer, uint64_t now) noexcept;
  // Answers a handshake of the peer. Without room it is due at once if it is timed; otherwise the peer will
  // repeat its own.
  void answer(Peer& peer, uint64_t now) noexcept;
  // The peer has refused the connection: the next handshake follows after HandshakeOptions::refused_ns.
  void postpone(Peer& peer, uint64_t now) noexcept;
  // The handshake with the peer is done, or has failed.
  void stop(Peer& peer) noexcept;
  // Sends a handshake to a process that is no peer. `name` is for the log. Errors: those of
  // DatagramQueue::send(); kResource: no memory.
  Status send_once(const Handshake& handshake, const DatagramAddress& to,
                   const char* name) noexcept;
  // Sends the handshakes that are due, as many as there is room for, up to the first node that is silent.
  void repeat(uint64_t now) noexcept;

  // A hint, read without the lock: when repeat() has to be called. UINT64_MAX: no peer is timed.
  uint64_t next_ns() const noexcept { return next_ns_.load(std::memory_order_relaxed); }

 private:
  Status send(Peer& peer) noexcept;
  bool has_ended(Peer& peer, uint64_t now) noexcept;
  void warn_of_silence(const Peer& peer, uint64_t now, bool goes_on) noexcept;

  const HandshakeParts& parts_;
  DatagramQueue& datagrams_;
  const PeerConnector& connector_;
  const JoinedGroups& groups_;
  HandshakeTimer timer_;
  std::atomic<uint64_t> next_ns_{UINT64_MAX};
  RateLimit silence_limit_{RateLimit::kSecond};  // by the handshakes' clock
};

}  // namespace hydrant::ibv
