// Fences behind puts to ranks of nodes that use several adapters: those of a node's ranks, or a rank's rails.
//
// An adapter acknowledges a write that may still be on its way to memory. Whatever comes by the same adapter
// later comes behind it; a word or a message by another adapter may be seen before. So may what another one
// reads or writes in the same place. So each put is followed by a fence, when it has completed: an RDMA read
// of eight bytes by the same queue pair, which pushes the write to memory before it is answered. The client's
// completion is that of the fence. (Reads do not push writes of relaxed adapters.)
//
// A peer's handshake says whether its node uses one adapter; set_up() decides by that. Peer::put_at_once is 0
// where puts need fences, so that puts without them test nothing more.
//
// Cost: a round trip, and a record, for each put. Nothing where it is not used.
//
// Threads: any; set_up() under the contact lock.
#pragma once

#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

class PutFences {
 public:
  PutFences(const Options& options, const Port& port, PeerTable& peers, const Poster& poster,
            DeferredWork& deferred) noexcept
      : options_(options), port_(port), peers_(peers), poster_(poster), deferred_(deferred) {}
  // `max_at_once`: longer puts are not one work request.
  void open(size_t max_at_once) noexcept;
  // The queue pairs must be destroyed before.
  void close() noexcept { landing_.close(); }

  // Decides about puts to a peer that is not open yet. `is_one`: the ranks of its node use one adapter. The
  // first peer with fences makes room for the puts under way that the options allow. Errors: kResource.
  Status set_up(Peer& peer, bool is_one, PutOrder order) noexcept;
  // A completion for the write of a put to a peer with fences: it posts the fence, whose end calls
  // `completion`. Null: too many are under way.
  Completion* begin(Peer& peer, Completion* completion) noexcept;
  // The write was not posted.
  void cancel(Completion& write) noexcept;

  // Posts as many of the waiting fences as there is room for. Under the lock of the peer.
  void advance(Peer& peer) noexcept;
  // Ends the waiting fences of a disconnected peer. Returns their number.
  uint32_t fail_waiting(Peer& peer) noexcept;

 private:
  // A put and then its fence.
  struct Put : Fence {
    PutFences* owner = nullptr;
    Rank peer = 0;
    Completion* completion = nullptr;
  };

  Status make_room() noexcept;
  static void after_write(Completion& completion, Status status) noexcept;
  static void after_fence(Completion& completion, Status status) noexcept;
  void start_fence(Put& put) noexcept;
  void give_back(Put& put) noexcept;

  const Options& options_;
  const Port& port_;
  PeerTable& peers_;
  Poster poster_;
  DeferredWork& deferred_;
  size_t max_at_once_ = 0;
  VerbsMemory landing_;  // fences read into it
  uint32_t room_ = 0;    // used entries of a send queue from which on no fence is posted
  bool threaded_ = true;
  std::unique_ptr<Put[]> puts_;
  SpinLock lock_;
  Fence* free_ = nullptr;  // of puts_; under lock_
};

}  // namespace hydrant::ibv
