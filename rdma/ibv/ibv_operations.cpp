// Puts and gets between pinned memory: cut by what the device takes at once, as many pieces under way as
// there is room for. Under the lock of the peer, but where it says otherwise.
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant {

using ibv::Operation;
using ibv::Peer;
using ibv::SendRecord;

namespace {

uint32_t local_key(const std::byte* key) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, key, sizeof loaded);
  return loaded.lkey;
}

uint32_t remote_key(const std::byte* key) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, key, sizeof loaded);
  return loaded.rkey;
}

void none_waits(Peer& peer) noexcept {
  peer.last_waiting = nullptr;
  peer.held &= ~Peer::kHeldByWaiting;
}

}  // namespace

Status IbvTransport::put_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  return begin<true>(peer, remote, local, bytes, completion);
}

Status IbvTransport::get_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  return begin<false>(peer, remote, local, bytes, completion);
}

// The request of an operation, and the record that stands for it at the end of the send queue. Not signalled.
template <bool kIsPut>
inline void IbvTransport::build(Peer& peer, Peer::Request& request,
                                const PinnedOperation& operation) noexcept {
  const bool is_inline = kIsPut && operation.bytes <= options_.inline_bytes;
  SendRecord& record = peer.records[peer.posted & record_mask_];
  record.position = peer.posted;
  record.completion = operation.completion;
  record.holds = SendRecord::Holds::kOperation;
  ++peer.posted;
  request.piece.addr = operation.local.addr;
  request.piece.length = static_cast<uint32_t>(operation.bytes);
  if (!is_inline) request.piece.lkey = local_key(operation.local.key);
  request.work.wr_id = reinterpret_cast<uintptr_t>(&record) | 1;
  request.work.num_sge = operation.bytes != 0 ? 1 : 0;
  request.work.opcode = kIsPut ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  request.work.send_flags = is_inline ? IBV_SEND_INLINE : 0;
  request.work.wr.rdma.remote_addr = operation.remote.addr;
  request.work.wr.rdma.rkey = remote_key(operation.remote.key);
}

// Those at the front that are one work request each.
template <bool kIsPut>
size_t IbvTransport::begin_list(Rank rank, std::span<const PinnedOperation> list) noexcept {
  Peer* const peer = peer_of(rank);
  if (peer == nullptr) return 0;
  Peer::Request requests[kBatch];
  const Guard guard(peer->lock, threaded_);
  const uint64_t before = peer->posted;
  uint32_t count = 0;
  for (; count < std::min<size_t>(list.size(), kBatch); ++count) {
    const PinnedOperation& one = list[count];
    const bool is_inline = kIsPut && one.bytes <= options_.inline_bytes;
    if (one.remote.key == nullptr || (one.local.key == nullptr && !is_inline) ||
        one.bytes > max_at_once_ || !takes_operation(*peer))
      break;
    Peer::Request& request = requests[count];
    request.work.sg_list = &request.piece;
    build<kIsPut>(*peer, request, one);
    if (count != 0) requests[count - 1].work.next = &request.work;
  }
  if (count == 0) return 0;
  requests[count - 1].work.send_flags |= IBV_SEND_SIGNALED;
  peer->signalled = peer->posted;
  // What is taken of a list that is not taken whole is told of when the peer is lost, which is soon.
  (void)hand_over(*peer, &requests[0].work, count);
  return static_cast<size_t>(peer->posted - before);
}

size_t IbvTransport::put_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept {
  return begin_list<true>(peer, list);
}

size_t IbvTransport::get_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept {
  return begin_list<false>(peer, list);
}

// What is one work request: it needs no Operation, its record holds all there is. Without any lock.
template <bool kIsPut>
inline Status IbvTransport::begin(Rank rank, const Pinned& remote, const Pinned& local,
                                  size_t bytes, Completion* completion) noexcept {
  Peer* const peer = peer_of(rank);
  const bool is_inline = kIsPut && bytes <= options_.inline_bytes;
  if (peer == nullptr || remote.key == nullptr || (local.key == nullptr && !is_inline) ||
      bytes > max_at_once_) [[unlikely]]
    return begin_otherwise(kIsPut, rank, remote, local, bytes, completion);
  const Guard guard(peer->lock, threaded_);
  if (!takes_operation(*peer)) [[unlikely]]
    return why_no_operation(*peer);
  Peer::Request& request = peer->operation;
  build<kIsPut>(*peer, request, {remote, local, bytes, completion});
  request.work.send_flags |= IBV_SEND_SIGNALED;
  peer->signalled = peer->posted;
  if (hand_over(*peer, &request.work, 1)) [[likely]]
    return Status::kOk;
  // It ends when the peer is lost, which is soon.
  return begin_waiting(*peer, kIsPut, remote, local, bytes, completion) != nullptr
             ? Status::kOk
             : Status::kNotReady;
}

// What is not: first contact, more than the device takes at once, no key. Without any lock.
[[gnu::noinline]] Status IbvTransport::begin_otherwise(bool is_put, Rank rank, const Pinned& remote,
                                                       const Pinned& local, size_t bytes,
                                                       Completion* completion) noexcept {
  Peer* const peer = peer_of(rank);
  if (peer == nullptr) return contact(rank);
  if (remote.key == nullptr ||
      (local.key == nullptr && !(is_put && bytes <= options_.inline_bytes)))
    return fail(Status::kBadArg, "memory without a key");
  {
    const Guard guard(peer->lock, threaded_);
    if (!takes_operation(*peer)) return why_no_operation(*peer);
    const uint32_t rails = bytes >= options_.stripe_bytes ? rails_for(*peer, is_put) : 0;
    if (rails != 0 && rails_wait(*peer, rails)) return Status::kNotReady;
    Operation* const operation = begin_waiting(*peer, is_put, remote, local, bytes, completion);
    if (operation == nullptr) return Status::kNotReady;
    if (rails != 0) add_shares(*peer, *operation, rails, remote, local, bytes);
    advance_operations(*peer);
    if (peer->first_waiting == nullptr && rails == 0) return Status::kOk;
  }
  add_chore(*peer);
  return Status::kOk;
}

[[gnu::noinline]] Status IbvTransport::why_no_operation(const Peer& peer) const noexcept {
  return peer.state.load(std::memory_order_acquire) == Peer::State::kLost ? why_lost(peer)
                                                                          : Status::kNotReady;
}

// The operation as the only one that waits; null: there are as many as there may be.
[[gnu::noinline]] Operation* IbvTransport::begin_waiting(Peer& peer, bool is_put,
                                                         const Pinned& remote, const Pinned& local,
                                                         size_t bytes,
                                                         Completion* completion) noexcept {
  Operation* operation = nullptr;
  {
    const Guard pool(operation_lock_, threaded_);
    operation = free_operations_;
    if (operation == nullptr) return nullptr;
    free_operations_ = operation->next;
  }
  *operation = Operation{.completion = completion,
                         .peer = &peer,
                         .local = local.addr,
                         .remote = remote.addr,
                         .left = bytes,
                         .lkey = local.key != nullptr ? local_key(local.key) : 0,
                         .rkey = remote_key(remote.key),
                         .is_put = is_put};
  peer.first_waiting = peer.last_waiting = operation;
  peer.held |= Peer::kHeldByWaiting;
  return operation;
}

// True: all of it is posted.
bool IbvTransport::post_pieces(Peer& peer, Operation& operation) noexcept {
  do {
    if (room_in_queue(peer) <= kKeptEntries) return false;
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(operation.left, max_piece_));
    const bool is_last = bytes == operation.left;
    peer.operation.piece = {operation.local, bytes, operation.lkey};
    ibv_send_wr& request = peer.operation.work;
    request.num_sge = bytes != 0 ? 1 : 0;
    request.opcode = operation.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.send_flags = operation.is_put && bytes <= options_.inline_bytes ? IBV_SEND_INLINE : 0;
    request.wr.rdma.remote_addr = operation.remote;
    request.wr.rdma.rkey = operation.rkey;
    SendRecord& record = next_record(peer, &request, is_last);
    record.operation = &operation;
    record.holds = SendRecord::Holds::kPiece;
    if (!hand_over(peer, &request, 1)) return false;
    ++operation.under_way;
    operation.local += bytes;
    operation.remote += bytes;
    operation.left -= bytes;
    operation.is_posted = is_last;
  } while (!operation.is_posted);
  return true;
}

void IbvTransport::advance_operations(Peer& peer) noexcept {
  while (Operation* operation = peer.first_waiting) {
    if (!post_pieces(peer, *operation)) return;
    peer.first_waiting = operation->next;
    if (peer.first_waiting == nullptr) none_waits(peer);
  }
}

// Ends operations that are not all posted; true: there are some to tell of, and maybe more. Without any lock.
bool IbvTransport::give_up_waiting(Peer& peer, Finished* finished) noexcept {
  const Guard guard(peer.lock, threaded_);
  while (peer.first_waiting != nullptr && !finished->is_full()) {
    Operation& operation = *std::exchange(peer.first_waiting, peer.first_waiting->next);
    operation.is_posted = true;
    operation.status = Status::kBroken;
    if (operation.under_way == 0) end_operation(operation, finished);
  }
  if (peer.first_waiting == nullptr) none_waits(peer);
  return finished->count != 0;
}

void IbvTransport::finish_piece(Operation& operation, Status status, Finished* finished) noexcept {
  --operation.under_way;
  // The first error says why; those that follow only say that all is over.
  if (operation.status == Status::kOk) operation.status = status;
  if (operation.is_posted && operation.under_way == 0) end_operation(operation, finished);
}

void IbvTransport::end_operation(Operation& operation, Finished* finished) noexcept {
  finished->add(operation.completion, operation.status);
  const Guard pool(operation_lock_, threaded_);
  operation.next = free_operations_;
  free_operations_ = &operation;
}

// Without a peer's lock: who is told may ask of the peer, but begins nothing (Transport::Completion).
uint32_t IbvTransport::tell(Finished& finished) noexcept {
  const uint32_t count = std::exchange(finished.count, 0);
  for (uint32_t i = 0; i < count; ++i) {
    const auto& [completion, status] = finished.ones[i];
    if (completion != nullptr) completion->done(*completion, status);
  }
  return count;
}

}  // namespace hydrant
