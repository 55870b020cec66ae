// Posts operations in pieces, atomics, and prepared operations. Tour "a put": a put of one work request is
// posted by the inline half, in the header.
#include "rdma/ibv/transfer/operations.hpp"

#include <new>

namespace hydrant::ibv {

void Operations::open(const Options& options, uint32_t max_piece, size_t max_at_once) noexcept {
  threaded_ = !options.single_threaded;
  inline_bytes_ = options.inline_bytes;
  room_ = std::max(options.send_depth, kEntriesForMessages) - kEntriesForMessages;
  max_piece_ = max_piece;
  max_at_once_ = max_at_once;
}

[[gnu::noinline, gnu::cold]] Status Operations::report_not_ready(const Peer& peer) noexcept {
  return peer.state.is_disconnected() ? disconnect_error(peer) : Status::kNotReady;
}

// ---- more than one work request ----

[[gnu::noinline, gnu::cold]] Status Operations::begin_in_pieces(bool is_put, Peer& peer,
                                                                const Pinned& remote,
                                                                const Pinned& local, size_t bytes,
                                                                Completion* completion) noexcept {
  if (remote.key == nullptr || (local.key == nullptr && !(is_put && bytes <= inline_bytes_)))
    return fail(Status::kBadArg, "a %s of %zu bytes: the remote or the local memory has no key",
                is_put ? "put" : "get", bytes);
  {
    const SpinGuard guard(peer.lock, threaded_);
    if (!is_ready(peer)) return report_not_ready(peer);
    const uint32_t rails = striping_.rails_for(peer, is_put, bytes);
    if (rails != 0 && Striping::is_busy(peer, rails)) return Status::kNotReady;
    PooledOperation* const operation = wait(peer, is_put, remote, local, bytes, completion);
    if (operation == nullptr) return Status::kNotReady;
    if (rails != 0) striping_.begin(peer, *operation, rails, remote, local);
    advance(peer);
    if (peer.pending.waiting() == nullptr && rails == 0) return Status::kOk;
  }
  deferred_.add(peer);
  return Status::kOk;
}

// Takes an operation from the pool and makes it the one that waits; null: the pool is empty.
PooledOperation* Operations::wait(Peer& peer, bool is_put, const Pinned& remote,
                                  const Pinned& local, size_t bytes,
                                  Completion* completion) noexcept {
  PooledOperation* const operation = pool_.take();
  if (operation == nullptr) return nullptr;
  operation->completion = completion;
  operation->local = local.addr;
  operation->remote = remote.addr;
  operation->left = bytes;
  operation->lkey = local.key != nullptr ? load_key(local.key).lkey : 0;
  operation->rkey = load_key(remote.key).rkey;
  operation->is_put = is_put;
  peer.pending.set_waiting(*operation);
  return operation;
}

// Makes the operation that the adapter has just refused the one that waits. It ends when its peer is
// disconnected, by the next poll.
[[gnu::noinline, gnu::cold]] Status Operations::hold_refused(Peer& peer,
                                                             const SendRequest& request) noexcept {
  PooledOperation* const operation = pool_.take();
  if (operation == nullptr) return Status::kNotReady;
  operation->completion = peer.send.next_record().completion;
  operation->local = request.piece.addr;
  operation->remote = request.work.wr.rdma.remote_addr;
  operation->left = request.piece.length;
  operation->lkey = request.piece.lkey;
  operation->rkey = request.work.wr.rdma.rkey;
  operation->is_put = request.work.opcode == IBV_WR_RDMA_WRITE;
  peer.pending.set_waiting(*operation);
  return Status::kOk;
}

// Posts pieces of the operation while there is room. True: all of it is posted.
bool Operations::post_pieces(Peer& peer, PooledOperation& operation) noexcept {
  SendRequest& request = peer.requests.operation;
  do {
    if (peer.send.room() <= kEntriesForMessages) return false;
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(operation.left, max_piece_));
    const bool is_last = bytes == operation.left;
    request.piece = {operation.local, bytes, operation.lkey};
    request.work.num_sge = bytes != 0 ? 1 : 0;
    request.work.opcode = operation.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.work.send_flags = operation.is_put && bytes <= inline_bytes_ ? IBV_SEND_INLINE : 0;
    request.work.wr.rdma.remote_addr = operation.remote;
    request.work.wr.rdma.rkey = operation.rkey;
    SendRecord& record = peer.send.add(request.work, is_last);
    record.operation = &operation;
    record.holds = SendRecord::Holds::kPiece;
    if (!poster_.post(peer, &request.work, 1)) return false;
    ++operation.under_way;
    operation.local += bytes;
    operation.remote += bytes;
    operation.left -= bytes;
    operation.is_posted = is_last;
  } while (!operation.is_posted);
  return true;
}

void Operations::advance(Peer& peer) noexcept {
  PooledOperation* const operation = peer.pending.waiting();
  if (operation != nullptr && post_pieces(peer, *operation)) peer.pending.clear_waiting();
}

void Operations::fail_waiting(Peer& peer, CompletionBatch* batch) noexcept {
  PooledOperation* const operation = peer.pending.waiting();
  if (operation == nullptr) return;
  peer.pending.clear_waiting();
  pool_.give_up(*operation, batch);
}

// ---- atomics: one work request each, which counts against the adapter's limit of RDMA reads ----

Status Operations::begin_atomic(Peer& peer, const Pinned& remote, const Pinned& local,
                                const Transport::Atomic& what, Completion* completion) noexcept {
  SendRequest request;
  request.piece = {local.addr, sizeof(uint64_t), load_key(local.key).lkey};
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.work.wr.atomic.remote_addr = remote.addr;
  request.work.wr.atomic.rkey = load_key(remote.key).rkey;
  if (what.kind == Transport::Atomic::Kind::kFetchAdd) {
    request.work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.work.wr.atomic.compare_add = what.operand;
  } else {
    request.work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    request.work.wr.atomic.compare_add = what.expected;
    request.work.wr.atomic.swap = what.operand;
  }
  const SpinGuard guard(peer.lock, threaded_);
  if (!is_ready(peer)) return report_not_ready(peer);
  SendRecord& record = peer.send.add(request.work, true);
  record.completion = completion;
  record.holds = SendRecord::Holds::kOperation;
  if (poster_.post(peer, &request.work, 1)) return Status::kOk;
  // A second execution would be wrong, so a refused atomic is not tried again.
  return fail(Status::kBroken, "%s is gone: its queue pair accepts no requests",
              name_of(peer).text);
}

// ---- prepared operations ----

// A put or get whose request is built once. Each start sets the record and the keys. The keys are written
// each time, since memory may have been registered again; comparing them with the last ones would cost the
// same.
class Operations::IbvPersistentRequest final : public Transport::PersistentRequest {
 public:
  IbvPersistentRequest(Operations& operations, Peer& peer, bool is_put, uintptr_t remote,
                       uintptr_t local, uint32_t bytes) noexcept
      : operations_(operations),
        peer_(peer),
        needs_local_key_(!is_put || bytes > operations.inline_bytes_) {
    request_.piece.addr = local;
    request_.piece.length = bytes;
    request_.work.sg_list = &request_.piece;
    request_.work.num_sge = bytes != 0 ? 1 : 0;
    request_.work.opcode = is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request_.work.send_flags = IBV_SEND_SIGNALED | (needs_local_key_ ? 0 : IBV_SEND_INLINE);
    request_.work.wr.rdma.remote_addr = remote;
  }

  // The caller holds no lock.
  Status start(const std::byte* remote_key, const std::byte* local_key,
               Completion* completion) noexcept override {
    if (remote_key == nullptr || (local_key == nullptr && needs_local_key_)) [[unlikely]]
      return fail_literal(Status::kBadArg,
                          "a persistent put or get: the remote or the local memory has no key");
    const SpinGuard guard(peer_.lock, operations_.threaded_);
    if (!operations_.is_ready(peer_)) [[unlikely]]
      return report_not_ready(peer_);
    SendRecord& record = peer_.send.add(request_.work);
    record.completion = completion;
    record.holds = SendRecord::Holds::kOperation;
    peer_.send.note_signalled();
    std::memcpy(&request_.work.wr.rdma.rkey, remote_key + offsetof(IbvKey, rkey),
                sizeof request_.work.wr.rdma.rkey);
    if (needs_local_key_)
      std::memcpy(&request_.piece.lkey, local_key + offsetof(IbvKey, lkey),
                  sizeof request_.piece.lkey);
    if (operations_.poster_.post(peer_, &request_.work, 1)) [[likely]]
      return Status::kOk;
    return operations_.hold_refused(peer_, request_);
  }

 private:
  Operations& operations_;
  Peer& peer_;  // lives as long as the transport
  SendRequest request_;
  const bool needs_local_key_;
};

std::unique_ptr<Transport::PersistentRequest> Operations::prepare(bool is_put, Peer& peer,
                                                                  uintptr_t remote, uintptr_t local,
                                                                  size_t bytes) noexcept {
  if (bytes > max_at_once_) return nullptr;
  return std::unique_ptr<Transport::PersistentRequest>(new (std::nothrow) IbvPersistentRequest(
      *this, peer, is_put, remote, local, static_cast<uint32_t>(bytes)));
}

}  // namespace hydrant::ibv
