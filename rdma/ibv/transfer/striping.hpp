// Long puts and gets, cut over several ports: docs/verbs.md, "Rails". Messages and short operations use the
// first port alone. A stripe of a put ends with a fence, so a message that is sent after the whole operation
// has ended finds all of its data in place.
//
// Invariant: stripes_in_flight_ is the number of stripes that were started and have not ended, over all
// peers. A rail of a peer has at most one stripe that waits for room.
//
// Threads: everything under the lock of the peer, except where a comment says otherwise.
#pragma once

#include "rdma/ibv/queue/completion_batch.hpp"
#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/transfer/peer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::ibv {

class Striping {
 public:
  Striping(OperationPool& pool, Rails& rails, Counters& counters) noexcept
      : pool_(pool), rails_(rails), counters_(counters) {}

  // The rails, as a set of bits, that a put or get of `bytes` uses now. 0: the first port alone.
  uint32_t rails_for(Peer& peer, bool is_put, size_t bytes) noexcept {
    return bytes >= stripe_bytes_ && peer.rails != nullptr ? usable_rails(peer, is_put) : 0;
  }
  void open(size_t stripe_bytes) noexcept { stripe_bytes_ = stripe_bytes; }
  // True: a stripe on one of these rails is not fully posted yet.
  static bool is_busy(const Peer& peer, uint32_t rails) noexcept;
  // Cuts the operation into stripes of about the same length. The operation itself keeps the first, which the
  // caller posts.
  void begin(Peer& peer, PooledOperation& operation, uint32_t rails,
             const PinnedOperations::Pinned& remote,
             const PinnedOperations::Pinned& local) noexcept;
  // Posts as much of the waiting stripes as there is room for.
  void advance(Peer& peer) noexcept;
  // The last request of the stripe that was posted so far has completed.
  void complete_stripe(Peer& peer, Stripe& stripe, Status status, CompletionBatch* batch) noexcept;
  // For a disconnected peer: ends waiting stripes whose rail has nothing under way, until the batch is full.
  void fail_waiting(Peer& peer, CompletionBatch* batch) noexcept;
  // For a disconnected peer: posts a last request on each rail, whose completion ends all before it. False:
  // an adapter refuses it, so that requests before it may never complete.
  bool post_tails(Peer& peer) noexcept;

  static bool has_stripes(const Peer& peer) noexcept {
    return peer.rails != nullptr && peer.rails->stripes != 0;
  }
  // Whether no peer has a stripe under way. Any thread, without a lock.
  bool is_idle() const noexcept { return stripes_in_flight_.load(std::memory_order_relaxed) == 0; }

 private:
  uint32_t usable_rails(Peer& peer, bool is_put) const noexcept;
  PutOrder order_of(const Peer& peer, uint32_t index) const noexcept;
  bool advance_rail(Peer& peer, uint32_t index) noexcept;
  bool post_fence(Peer& peer, uint32_t index, Stripe& stripe) noexcept;
  static bool post(Peer& peer, PeerRail& end, ibv_send_wr& request, Stripe* ends) noexcept;

  OperationPool& pool_;
  Rails& rails_;
  Counters& counters_;
  size_t stripe_bytes_ = SIZE_MAX;
  std::atomic<uint32_t> stripes_in_flight_{0};
};

}  // namespace hydrant::ibv
