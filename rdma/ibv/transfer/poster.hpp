// Posts prepared requests, and undoes those that the adapter refuses.
//
// Invariant: a refused request leaves no trace in the send queue; PeerState::is_refused() is true from then
// on, all later requests are refused, and the next poll disconnects the peer.
//
// Threads: everything under the lock of the peer. Copies are interchangeable: a Poster has no state.
#pragma once

#include "rdma/ibv/queue/cell_pool.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/transfer/peer.hpp"

#include <cstdint>

namespace hydrant::ibv {

class Poster {
 public:
  Poster(DeferredWork& deferred, LaneCells& cells) noexcept : deferred_(deferred), cells_(cells) {}

  // Posts the last `count` requests added to the send queue of the peer. False: not all were accepted.
  bool post(Peer& peer, ibv_send_wr* first, uint32_t count) noexcept {
    ibv_send_wr* bad = nullptr;
    const int error = peer.send.post(first, &bad);
    if (error == 0) [[likely]]
      return true;
    undo_unposted(peer, bad != nullptr ? bad : first, count, error);
    return false;
  }
  // Posts an empty signalled write, whose completion ends all requests before it. Does nothing if the queue
  // is full. False: the adapter refuses it.
  bool post_tail(Peer& peer) noexcept;
  // Releases the slot of a message, and its cell if it has one.
  void release_message(Peer& peer, const SendRecord& record) noexcept {
    peer.slots.release(record.slot);
    if (record.cell != SendRecord::kNone) cells_[record.lane].release(record.cell);
  }

 private:
  void undo_unposted(Peer& peer, const ibv_send_wr* bad, uint32_t count, int error) noexcept;

  DeferredWork& deferred_;
  LaneCells& cells_;
};

}  // namespace hydrant::ibv
