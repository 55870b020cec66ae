// Ends connections: moves the queue pairs of the peer to the error state, and abandons everything that waits
// for them.
//
// Invariant: after disconnect() each operation and message of the peer ends. A posted one ends by a
// completion: its own failed one, or that of the last request, which is posted for this. If an adapter may
// report nothing more, the peer is abandoned, and posted ones end in the next polls
// (Completions::end_abandoned()). The others end at once.
//
// Threads: any thread that polls, without the lock of the peer.
#pragma once

#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/transfer/messages.hpp"
#include "rdma/ibv/transfer/operations.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/striping.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
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
  // `ranks`: of the job; `far`: one that is reached over the network, or kNoRank.
  void open(bool threaded, Rank ranks, Rank far) noexcept {
    threaded_ = threaded;
    ranks_ = ranks;
    far_ = far;
  }
  // The callback is called for each disconnected peer that the job has not declared dead.
  void set_peer_failed_callback(Transport::PeerFailedFn callback) noexcept {
    peer_failed_ = callback;
  }

  // Later calls for the peer report `reason`, which is kept by reference. Only the first call for a peer
  // counts.
  void disconnect(Peer& peer, const char* reason) noexcept;
  // Leaves that to the next poll: completions and callbacks belong to threads that poll. Any thread, without
  // the lock of the peer.
  void disconnect_later(Peer& peer, const char* reason) noexcept;
  // Disconnects all peers because a device may report nothing more. If `is_for_good`, the device of messages
  // has failed: a rank that has no peer of its job yet reports once that it cannot reach the others.
  void disconnect_all(const char* reason, bool is_for_good) noexcept;
  // Disconnects the peers that the job has declared dead since the last call.
  [[gnu::cold]] void disconnect_dead() noexcept;
  // Posts the last request of a disconnected peer, unless that was done or nothing is under way. False: the
  // send queue has no room yet. Under the lock of the peer.
  bool post_tail(Peer& peer) noexcept;
  // Abandons stripes whose rail has nothing under way any more. Returns the number of operations that ended.
  uint32_t fail_stripes(Peer& peer) noexcept;

 private:
  PeerTable& peers_;
  Messages& messages_;
  Operations& operations_;
  Striping& striping_;
  Poster& poster_;
  DeferredWork& deferred_;
  Counters& counters_;
  void report_failed(Rank rank) noexcept;

  bool threaded_ = true;
  Rank ranks_ = 0;
  Rank far_ = kNoRank;
  std::atomic<bool> has_reported_{false};
  Transport::PeerFailedFn peer_failed_ = nullptr;
};

}  // namespace hydrant::ibv
