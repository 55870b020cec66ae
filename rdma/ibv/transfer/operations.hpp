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
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/striping.hpp"
#include "rdma/transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace hydrant::ibv {

class Operations {
 public:
  using Pinned = Transport::Pinned;
  using PinnedOperation = Transport::PinnedOperation;
  using Completion = Transport::Completion;

  Operations(OperationPool& pool, Striping& striping, const Poster& poster,
             DeferredWork& deferred) noexcept
      : pool_(pool), striping_(striping), poster_(poster), deferred_(deferred) {}
  // `max_piece`: the adapter's limit for a work request. `max_at_once`, at most that: longer operations go
  // through the pool.
  void open(const Options& options, uint32_t max_piece, size_t max_at_once) noexcept;

  // As Transport::put_pinned() (kIsPut) and get_pinned().
  template <bool kIsPut>
  Status begin(Peer& peer, const Pinned& remote, const Pinned& local, size_t bytes,
               Completion* completion) noexcept;
  // As Transport::put_pinned_list() and get_pinned_list(). Posts the leading operations that are one work
  // request each as one list. Returns their number.
  template <bool kIsPut>
  size_t begin_list(Peer& peer, std::span<const PinnedOperation> list) noexcept;
  // As Transport::start_atomic().
  Status begin_atomic(Peer& peer, const Pinned& remote, const Pinned& local,
                      const Transport::Atomic& what, Completion* completion) noexcept;
  // Null: the operation needs more than one work request, or there is no memory.
  std::unique_ptr<Transport::PersistentRequest> prepare(bool is_put, Peer& peer, uintptr_t remote,
                                                        uintptr_t local, size_t bytes) noexcept;

  // Posts as much of the waiting operation as there is room for. Under the lock of the peer.
  void advance(Peer& peer) noexcept;
  // Ends the waiting operation of a disconnected peer. Under the lock of the peer.
  void fail_waiting(Peer& peer, CompletionBatch* batch) noexcept;

 private:
  class IbvPersistentRequest;

  bool is_ready(const Peer& peer) const noexcept {
    return peer.state.is_open() && peer.pending.waiting() == nullptr && peer.send.used() < room_;
  }
  template <bool kIsPut>
  bool is_copied(size_t bytes) const noexcept {
    return kIsPut && bytes <= inline_bytes_;
  }
  template <bool kIsPut>
  void prepare_request(Peer& peer, SendRequest& request, const PinnedOperation& operation,
                       uint32_t flags) noexcept;
  [[gnu::cold]] Status begin_in_pieces(bool is_put, Peer& peer, const Pinned& remote,
                                       const Pinned& local, size_t bytes,
                                       Completion* completion) noexcept;
  [[gnu::cold]] static Status report_not_ready(const Peer& peer) noexcept;
  PooledOperation* wait(Peer& peer, bool is_put, const Pinned& remote, const Pinned& local,
                        size_t bytes, Completion* completion) noexcept;
  [[gnu::cold]] Status hold_refused(Peer& peer, const SendRequest& request) noexcept;
  bool post_pieces(Peer& peer, PooledOperation& operation) noexcept;

  static IbvKey load_key(const std::byte* key) noexcept {
    IbvKey loaded;
    std::memcpy(&loaded, key, sizeof loaded);
    return loaded;
  }

  OperationPool& pool_;
  Striping& striping_;
  Poster poster_;
  DeferredWork& deferred_;
  bool threaded_ = true;
  uint32_t inline_bytes_ = 0;
  uint32_t room_ = 0;  // used entries of a send queue from which on no operation is accepted
  uint32_t max_piece_ = 0;
  size_t max_at_once_ = 0;
};

// ---- the fast paths, inline in the transport's calls ----

// Fills in the request for the operation, with the send flags `flags`, and adds it to the send queue.
template <bool kIsPut>
inline void Operations::prepare_request(Peer& peer, SendRequest& request,
                                        const PinnedOperation& operation, uint32_t flags) noexcept {
  SendRecord& record = peer.send.add(request.work);
  record.completion = operation.completion;
  record.holds = SendRecord::Holds::kOperation;
  request.piece.addr = operation.local.addr;
  request.piece.length = static_cast<uint32_t>(operation.bytes);
  if (!is_copied<kIsPut>(operation.bytes)) request.piece.lkey = load_key(operation.local.key).lkey;
  request.work.num_sge = operation.bytes != 0 ? 1 : 0;
  request.work.opcode = kIsPut ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  request.work.send_flags = flags | (is_copied<kIsPut>(operation.bytes) ? IBV_SEND_INLINE : 0);
  request.work.wr.rdma.remote_addr = operation.remote.addr;
  request.work.wr.rdma.rkey = load_key(operation.remote.key).rkey;
}

template <bool kIsPut>
[[gnu::always_inline]] inline Status Operations::begin(Peer& peer, const Pinned& remote,
                                                       const Pinned& local, size_t bytes,
                                                       Completion* completion) noexcept {
  if (remote.key == nullptr || (local.key == nullptr && !is_copied<kIsPut>(bytes)) ||
      bytes > max_at_once_) [[unlikely]]
    return begin_in_pieces(kIsPut, peer, remote, local, bytes, completion);
  const SpinGuard guard(peer.lock, threaded_);
  if (!is_ready(peer)) [[unlikely]]
    return report_not_ready(peer);
  SendRequest& request = peer.requests.operation;
  prepare_request<kIsPut>(peer, request, {remote, local, bytes, completion}, IBV_SEND_SIGNALED);
  peer.send.note_signalled();
  if (poster_.post(peer, &request.work, 1)) [[likely]]
    return Status::kOk;
  return hold_refused(peer, request);
}

template <bool kIsPut>
inline size_t Operations::begin_list(Peer& peer, std::span<const PinnedOperation> list) noexcept {
  SendRequest requests[CompletionBatch::kCapacity];
  const SpinGuard guard(peer.lock, threaded_);
  const uint64_t before = peer.send.posted();
  uint32_t count = 0;
  for (; count < std::min<size_t>(list.size(), CompletionBatch::kCapacity); ++count) {
    const PinnedOperation& next = list[count];
    if (next.remote.key == nullptr ||
        (next.local.key == nullptr && !is_copied<kIsPut>(next.bytes)) ||
        next.bytes > max_at_once_ || !is_ready(peer))
      break;
    SendRequest& request = requests[count];
    request.work.sg_list = &request.piece;
    prepare_request<kIsPut>(peer, request, next, 0);
    if (count != 0) requests[count - 1].work.next = &request.work;
  }
  if (count == 0) return 0;
  peer.send.set_signalled(requests[count - 1].work);
  // If the adapter refuses a part of the list, the next poll disconnects the peer, which ends the rest.
  (void)poster_.post(peer, &requests[0].work, count);
  return static_cast<size_t>(peer.send.posted() - before);
}

}  // namespace hydrant::ibv
