// Puts and gets between pinned memory, and atomics. An operation of one work request needs no state but its
// record in the send queue. One that is longer than the adapter takes at once, or that waits for room, is an
// PooledOperation, posted in pieces; a long one is cut over several ports (Striping).
//
// Invariant: at most one operation of a peer waits, and no other is posted to that peer meanwhile, so that
// operations keep their order. Each completion is called once, without the lock of the peer.
//
// Threads: any. The methods take the lock of the peer, except where a comment says otherwise.
#pragma once

#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/first_contact.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/put_fences.hpp"
#include "rdma/ibv/transfer/striping.hpp"
#include "rdma/transport/pinned_operations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace hydrant::ibv {

class Operations final : public PinnedOperations {
 public:
  Operations(const Options& options, const Ports& ports, const Rails& rails, PeerTable& peers,
             OperationPool& pool, Striping& striping, PutFences& fences, const Poster& poster,
             DeferredWork& deferred) noexcept
      : options_(options),
        ports_(ports),
        rails_(rails),
        peers_(peers),
        pool_(pool),
        striping_(striping),
        fences_(fences),
        poster_(poster),
        deferred_(deferred) {}
  // `max_piece`: the adapter's limit for a work request. `max_at_once`, at most that: longer operations go
  // through the pool. `self`: this rank.
  void open(uint32_t max_piece, size_t max_at_once, bool has_atomics, Rank self,
            FirstContact& contact) noexcept;

  std::unique_ptr<Registrar> make_registrar() noexcept override { return make_registrar({}); }
  std::unique_ptr<Registrar> make_bulk_registrar() noexcept override;
  uint32_t keyless_bytes() const noexcept override { return inline_bytes_; }
  PutOrder put_order() const noexcept override { return ports_.all[0].order; }
  // kRefused: the peer's adapter refuses the key. That ends the connection: later operations are kBroken.
  Status put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override;
  // Posts the leading operations that are one work request each, and that there is room for, as one list of
  // work requests; the last one is signalled.
  size_t put_list(Rank peer, std::span<const Operation> list) noexcept override;
  size_t get_list(Rank peer, std::span<const Operation> list) noexcept override;
  // Null also: there was no contact with the peer yet, or the operation needs more than one work request, as
  // a put with a fence does.
  std::unique_ptr<PersistentRequest> make_persistent_put(Rank peer, uintptr_t remote,
                                                         uintptr_t local,
                                                         size_t bytes) noexcept override;
  std::unique_ptr<PersistentRequest> make_persistent_get(Rank peer, uintptr_t remote,
                                                         uintptr_t local,
                                                         size_t bytes) noexcept override;
  // Uses the first port. kBroken also: the adapter refused the request.
  Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local, const Atomic& what,
                      Completion* completion) noexcept override;

  // Posts as much of the waiting operation as there is room for. Under the lock of the peer.
  void advance(Peer& peer) noexcept;
  // Ends the waiting operation of a disconnected peer. Under the lock of the peer.
  void fail_waiting(Peer& peer, CompletionBatch* batch) noexcept;

 private:
  template <bool kLocks>
  class IbvPersistentRequest;

  std::unique_ptr<Registrar> make_registrar(const IbvRegistrarOptions& options) noexcept;
  template <bool kIsPut, bool kLocks, bool kHasFence = false>
  Status begin(Rank rank, const Pinned& remote, const Pinned& local, size_t bytes,
               Completion* completion) noexcept;
  template <bool kIsPut>
  size_t begin_list(Rank rank, std::span<const Operation> list) noexcept;
  std::unique_ptr<PersistentRequest> prepare(bool is_put, Rank rank, uintptr_t remote,
                                             uintptr_t local, size_t bytes) noexcept;

  bool is_ready(const Peer& peer) const noexcept {
    return peer.state.is_open() && peer.pending.waiting() == nullptr && peer.send.used() < room_;
  }
  template <bool kIsPut>
  bool is_copied(size_t bytes) const noexcept {
    return kIsPut && bytes <= inline_bytes_;
  }
  template <bool kIsPut>
  void prepare_request(Peer& peer, SendRequest& request, const Operation& operation,
                       uint32_t flags) noexcept;
  template <bool kIsPut>
  size_t at_once(const Peer& peer) const noexcept {
    return kIsPut ? peer.put_at_once.load(std::memory_order_relaxed) : max_at_once_;
  }
  template <bool kLocks>
  Status begin_rare_put(Peer& peer, const Pinned& remote, const Pinned& local, size_t bytes,
                        Completion* completion) noexcept;
  [[gnu::cold]] Status begin_in_pieces(bool is_put, Peer& peer, const Pinned& remote,
                                       const Pinned& local, size_t bytes,
                                       Completion* completion) noexcept;
  PooledOperation* wait(Peer& peer, bool is_put, const Pinned& remote, const Pinned& local,
                        size_t bytes, Completion* completion) noexcept;
  [[gnu::cold]] Status hold_refused(Peer& peer, const SendRequest& request) noexcept;
  bool post_pieces(Peer& peer, PooledOperation& operation) noexcept;

  static IbvKey load_key(const std::byte* key) noexcept {
    IbvKey loaded;
    std::memcpy(&loaded, key, sizeof loaded);
    return loaded;
  }

  const Options& options_;
  const Ports& ports_;
  const Rails& rails_;
  PeerTable& peers_;
  OperationPool& pool_;
  Striping& striping_;
  PutFences& fences_;
  Poster poster_;
  DeferredWork& deferred_;
  FirstContact* contact_ = nullptr;
  Rank self_ = 0;
  bool has_atomics_ = false;
  bool threaded_ = true;
  uint32_t inline_bytes_ = 0;
  uint32_t room_ = 0;  // used entries of a send queue from which on no operation is accepted
  uint32_t max_piece_ = 0;
  size_t max_at_once_ = 0;  // of gets, and of puts with a fence
};

}  // namespace hydrant::ibv
