// Hands prepared requests to the adapter, and undoes those that it refuses.
//
// Invariant: a refused request is as if it had not been added to the send queue; its peer is refused from
// then on, and disconnected by the next poll.
//
// Threads: everything under the lock of the peer. A copy is as good as the original: it has no state.
#pragma once

#include "rdma/ibv/queue/cell_pool.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/transfer/peer.hpp"

#include <cstdint>

namespace hydrant::ibv {

class Poster {
 public:
  Poster(DeferredWork& deferred, LaneCells& cells) noexcept : deferred_(deferred), cells_(cells) {}

  // The last `count` requests added to the send queue of the peer. False: not all were accepted.
  bool post(Peer& peer, ibv_send_wr* first, uint32_t count) noexcept {
    ibv_send_wr* bad = nullptr;
    const int error = peer.send.post(first, &bad);
    if (error == 0) [[likely]]
      return true;
    undo_unposted(peer, bad != nullptr ? bad : first, count, error);
    return false;
  }
  // An empty write with a completion: its end is the end of all requests before it. Nothing if the queue is
  // full.
  void post_tail(Peer& peer) noexcept;
  // What the record of a message holds: its slot, and its cell if it has one.
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
