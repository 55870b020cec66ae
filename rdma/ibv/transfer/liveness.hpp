// Detects peers that have died, and adapters that hang. Only a sender notices a dead peer, by missing
// acknowledgements, so an idle peer is probed with an empty write, unless the launcher reports its death. The
// adapter of a stopped process still acknowledges the write. An adapter that hangs reports nothing at all, so
// checks without progress are counted.
//
// Invariant: a single thread checks in each interval.
//
// Threads: any, without the lock of a peer.
#pragma once

#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class Liveness {
 public:
  Liveness(PeerTable& peers, Poster& poster, DeferredWork& deferred, Counters& counters) noexcept
      : peers_(peers), poster_(poster), deferred_(deferred), counters_(counters) {}
  // Peers with lower numbers than `first_probed` are probed only after requests that get no completion of
  // their own.
  void open(const Options& options, Rank first_probed) noexcept;

  // Checks all peers if the interval has passed.
  void check() noexcept;
  uint64_t next_check_ns() const noexcept { return next_ns_.load(std::memory_order_relaxed); }

 private:
  void probe(Peer& peer) noexcept;
  void refuse_stalled(Peer& peer) noexcept;

  PeerTable& peers_;
  Poster& poster_;
  DeferredWork& deferred_;
  Counters& counters_;
  bool threaded_ = true;
  Rank first_probed_ = 0;
  uint64_t interval_ns_ = 0;
  uint64_t patience_ = 0;  // checks without progress
  std::atomic<uint64_t> next_ns_{UINT64_MAX};
};

}  // namespace hydrant::ibv
