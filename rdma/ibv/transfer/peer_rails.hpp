// The connections to a peer by the rails: the ports beside the first one.
#pragma once

#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/send_queue.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

struct PeerRail {
  // ---- connection: under the contact lock ----
  uint32_t first_sequence = 0;
  bool is_ready = false;  // can receive
  uint64_t their_fence = 0;
  uint32_t their_fence_key = 0;
  // ---- sending: under the lock of the peer ----
  Stripe* waiting = nullptr;   // not all posted yet
  Stripe* unfenced = nullptr;  // written, and the fence not posted
  SendQueue send;              // not open: there is no connection
};

// The rails of a peer. Created with the peer, if both processes have rails.
struct PeerRails {
  bool is_known = false;  // a handshake has named the peer's usable rails; under the contact lock
  // Bit i: rail i is usable in both directions. Written under the lock of the peer.
  std::atomic<uint32_t> usable{0};
  uint32_t stripes = 0;  // under way
  // Set when a message was refused because of a striped put. The next `unstriped` long puts use the first
  // port alone, where messages may follow them at once. `messages`: the number of messages sent at that time.
  static constexpr uint32_t kUnstriped = 16;
  uint32_t unstriped = 0;
  uint64_t messages = 0;
  std::array<PeerRail, kMaxRails - 1> rails;
};

}  // namespace hydrant::ibv
