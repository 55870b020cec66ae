// Ends connections: the queue pairs of the peer fail, and everything that waits for them is given up.
//
// Invariant: after disconnect() each operation and message of the peer ends: posted ones by a completion,
// which the adapter reports as failed or a last request brings; the others at once.
//
// Threads: any thread that polls, without the lock of the peer.
#pragma once

#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/transfer/messages.hpp"
#include "rdma/ibv/transfer/operations.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/striping.hpp"
#include "rdma/transport.hpp"

#include <cstdint>

namespace hydrant::ibv {

class Disconnector {
 public:
  Disconnector(PeerTable& peers, Messages& messages, Operations& operations, Striping& striping,
               Poster& poster, DeferredWork& deferred, Counters& counters) noexcept
      : peers_(peers),
        messages_(messages),
        operations_(operations),
        striping_(striping),
        poster_(poster),
        deferred_(deferred),
        counters_(counters) {}
  void open(bool threaded) noexcept { threaded_ = threaded; }
  // `lost` is called for each peer that is disconnected and not buried.
  void set_peer_failed_callback(Transport::PeerFailedFn callback) noexcept {
    peer_failed_ = callback;
  }

  // `reason`, for the error of later calls, is kept by reference. Only the first call for a peer counts.
  void disconnect(Peer& peer, const char* reason) noexcept;
  void disconnect_all(const char* reason) noexcept;
  // Those that were buried since the last call.
  [[gnu::cold]] void disconnect_dead() noexcept;
  // Posts the last request of a disconnected peer, if it still has to be. True: it is posted. Under the lock
  // of the peer.
  bool post_tail(Peer& peer) noexcept;
  // Gives up stripes whose rail has nothing under way any more. Returns the number of operations that ended.
  uint32_t fail_stripes(Peer& peer) noexcept;

 private:
  PeerTable& peers_;
  Messages& messages_;
  Operations& operations_;
  Striping& striping_;
  Poster& poster_;
  DeferredWork& deferred_;
  Counters& counters_;
  bool threaded_ = true;
  Transport::PeerFailedFn peer_failed_ = nullptr;
};

}  // namespace hydrant::ibv
