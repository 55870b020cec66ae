// The state of a peer: its connection, its send queue, and the messages that have arrived from it. It is
// created at first contact, and kept for the life of the transport.
#pragma once

#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/queue/credits.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/ready_list.hpp"
#include "rdma/ibv/queue/receive_pool.hpp"
#include "rdma/ibv/queue/send_queue.hpp"
#include "rdma/ibv/queue/send_slots.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/transfer/peer_rails.hpp"
#include "rdma/ibv/transfer/peer_state.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"
#include "rdma/transport/spin_lock.hpp"
#include "rdma/transport/transport.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

struct Destination;

// A committed message whose payload has no receive slot yet. Later messages of its lane wait behind it.
struct StalledMessage {
  bool is_there = false;
  uint16_t slot = 0;
  uint32_t word = 0;
  uint32_t head_bytes = 0;
  Cell cell;
  uint32_t payload_bytes = 0;
};

// State of the handshake with a peer. Under the contact lock.
struct PeerConnection {
  Destination* destination = nullptr;  // of the handshakes; null: no handshake is under way
  Rank their_rank = 0;                 // in its own group
  uint32_t first_sequence = 0;         // of this process's packets
  bool can_receive = false;  // the peer's queue pair is known, and this side's can receive
  uint64_t next_handshake_ns = 0;
  uint64_t handshake_interval_ns = 0;
  uint64_t handshake_since_ns = 0;
  uint64_t gives_up_ns = 0;
  static constexpr uint32_t kNotTimed = UINT32_MAX;
  uint32_t timer_place = kNotTimed;  // in HandshakeTimer
};

// Registered memory for messages with a peer. Constant once the peer is published, except peer_slots and
// peer_slot_key, which the peer's handshake sets.
struct PeerMemory {
  VerbsMemory buffers;        // send slots, then receive buffers
  VerbsMemory receive_slots;  // the peer writes cells here: for requests, then for replies
  std::unique_ptr<ReceiveBuffer[]> received;
  uintptr_t peer_slots = 0;
  uint32_t peer_slot_key = 0;
};

// Prebuilt requests to one peer. Under the lock of the peer.
struct PeerRequests {
  SendRequest message;    // a SEND
  SendRequest cell;       // the write of its payload, before it
  SendRequest operation;  // a write or read between pinned memory
};

struct Peer : DeferredItem {
  Rank rank = 0;         // its number in this process
  bool is_self = false;  // this process itself, for atomic operations on its own words
  Rank index_at_peer =
      0;  // this process's number in the peer, in each message; set by the handshake
  EndpointAddress endpoint;  // constant once the peer is published
  PeerState state;
  PeerConnection connection;
  PeerMemory memory;
  // Longer puts are not one work request: they are posted in pieces, or with a fence (PutFences). Constant
  // once the peer is open; 0 before.
  std::atomic<size_t> put_at_once{0};

  // ---- sending: under `lock` ----
  SpinLock lock;
  bool has_tail = false;  // a last request was posted after the disconnection
  uint64_t probed = 0;    // positions posted at the last check, probe included
  PeerRequests requests;
  SendSlots slots;
  std::array<StalledMessage, kLaneCount> stalled;
  PendingOperations pending;
  Fence* unfenced = nullptr;         // fences that wait for room
  std::unique_ptr<PeerRails> rails;  // null: this process or the peer has only one port
  Credits credits;

  // ---- receiving ----
  std::array<DeliveryQueue, kLaneCount> delivery_queues;

  // Last, so that it is destroyed first: until then the adapter accesses the memory above.
  SendQueue send;
};

// A peer's name for logs and errors: "rank 1", or in another group "peer 5 (rank 1 of group 1f00...)".
struct PeerName {
  char text[64] = "";
};
PeerName name_of(Rank number, Rank their_rank, uint64_t group) noexcept;
inline PeerName name_of(const Peer& peer) noexcept {
  return name_of(peer.rank, peer.connection.their_rank, peer.endpoint.group);
}
// Sets the error text: the name of the disconnected peer, the reason and its address. Returns kBroken.
Status disconnect_error(const Peer& peer) noexcept;
// Returns the answer to an operation on a peer that is not open, or that has no room now: kBroken if it is
// disconnected; kResource or kBroken if it refuses the connection, for a reason that may pass or that stays;
// else kNotReady. Sets the error text, but for kNotReady.
[[gnu::cold]] Status report_not_ready(const Peer& peer) noexcept;

}  // namespace hydrant::ibv
