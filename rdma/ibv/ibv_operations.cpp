// Puts and gets between pinned memory: cut by what the device takes at once, as many pieces under way as
// there is room for. Under the lock of the peer, but where it says otherwise.
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {

using ibv::Operation;
using ibv::Peer;

namespace {

// Entries of the send queue that operations leave to messages.
constexpr uint32_t kKept = 3;

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

}  // namespace

Status IbvTransport::put_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  return begin(true, peer, remote, local, bytes, completion);
}

Status IbvTransport::get_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                                Completion* completion) noexcept {
  return begin(false, peer, remote, local, bytes, completion);
}

// Without any lock.
Status IbvTransport::begin(bool is_put, Rank rank, const Pinned& remote, const Pinned& local,
                           size_t bytes, Completion* completion) noexcept {
  Peer* peer = peer_of(rank);
  if (peer == nullptr) [[unlikely]]
    return contact(rank);
  const bool is_inline = is_put && bytes <= options_.inline_bytes;
  if (remote.key == nullptr || (local.key == nullptr && !is_inline)) [[unlikely]]
    return fail(Status::kBadArg, "memory without a key");
  bool waits = false;
  {
    const Guard guard(peer->lock, threaded_);
    const Peer::State state = peer->state.load(std::memory_order_acquire);
    if (state != Peer::State::kOpen) [[unlikely]]
      return state == Peer::State::kLost ? why_lost(*peer) : Status::kNotReady;
    if (peer->first_waiting != nullptr || room_in_queue(*peer) <= kKept) [[unlikely]]
      return Status::kNotReady;
    Operation* operation = nullptr;
    {
      const Guard pool(operation_lock_, threaded_);
      operation = free_operations_;
      if (operation == nullptr) [[unlikely]]
        return Status::kNotReady;
      free_operations_ = operation->next;
    }
    *operation = Operation{.completion = completion,
                           .peer = peer,
                           .local = local.addr,
                           .remote = remote.addr,
                           .left = bytes,
                           .lkey = local.key != nullptr ? local_key(local.key) : 0,
                           .rkey = remote_key(remote.key),
                           .is_put = is_put};
    if (!post_pieces(*peer, *operation)) [[unlikely]] {
      peer->first_waiting = peer->last_waiting = operation;
      waits = true;
    }
  }
  if (waits) [[unlikely]]
    add_chore(*peer);
  return Status::kOk;
}

// True: all of it is posted.
bool IbvTransport::post_pieces(Peer& peer, Operation& operation) noexcept {
  do {
    if (room_in_queue(peer) <= kKept) return false;
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(operation.left, max_piece_));
    const bool is_last = bytes == operation.left;
    peer.operation.piece = {operation.local, bytes, operation.lkey};
    ibv_send_wr& request = peer.operation.work;
    request.num_sge = bytes != 0 ? 1 : 0;
    request.opcode = operation.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.send_flags = operation.is_put && bytes <= options_.inline_bytes ? IBV_SEND_INLINE : 0;
    request.wr.rdma.remote_addr = operation.remote;
    request.wr.rdma.rkey = operation.rkey;
    next_record(peer, &request, is_last).operation = &operation;
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
    if (peer.first_waiting == nullptr) peer.last_waiting = nullptr;
  }
}

void IbvTransport::finish_piece(Operation& operation, Status status, Finished* finished) noexcept {
  --operation.under_way;
  // The first error says why; those that follow only say that all is over.
  if (operation.status == Status::kOk) operation.status = status;
  if (operation.is_posted && operation.under_way == 0) finished->add(&operation);
}

// Without any lock: who is told may begin the next operation.
uint32_t IbvTransport::tell(const Finished& finished) noexcept {
  uint32_t count = 0;
  for (Operation* operation = finished.first; operation != nullptr; ++count) {
    Completion* const completion = operation->completion;
    const Status status = operation->status;
    Operation* const next = operation->next;
    {
      const Guard pool(operation_lock_, threaded_);
      operation->next = free_operations_;
      free_operations_ = operation;
    }
    if (completion != nullptr) completion->done(*completion, status);
    operation = next;
  }
  return count;
}

}  // namespace hydrant
