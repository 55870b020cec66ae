// Posts operations, whole or in pieces, atomics, and prepared operations. Tour "a put": Operations::begin().
#include "rdma/ibv/transfer/operations.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "rdma/ibv/registrar/rail_registrar.hpp"

#include <new>

namespace hydrant::ibv {

void Operations::open(uint32_t max_piece, size_t max_at_once, bool has_atomics, Rank self,
                      FirstContact& contact) noexcept {
  threaded_ = !options_.single_threaded;
  inline_bytes_ = options_.inline_bytes;
  room_ = std::max(options_.send_depth, kEntriesForMessages) - kEntriesForMessages;
  max_piece_ = max_piece;
  max_at_once_ = max_at_once;
  has_atomics_ = has_atomics;
  self_ = self;
  contact_ = &contact;
}

// The registrar leaves a part of the locked-memory limit to peers that are contacted later.
std::unique_ptr<Registrar> Operations::make_bulk_registrar() noexcept {
  return make_registrar({.relaxed_ordering = options_.relaxed_ordering});
}

std::unique_ptr<Registrar> Operations::make_registrar(const IbvRegistrarOptions& options) noexcept {
  const MachineLimits machine = read_machine_limits();
  const uint32_t ports = rails_.count() + 1;
  const Needs needs = needs_of(options_, ports_.all[0], ports);
  const uint64_t kept =
      machine.memlock_lifted ? 0 : needs.kept_of(machine.memlock_bytes, peers_.places() - 1);
  if (ports != 1) {
    ibv_pd* domains[kMaxRails] = {};
    for (uint32_t i = 0; i < ports; ++i) domains[i] = ports_.all[i].device.pd;
    std::unique_ptr<Registrar> made;
    if (RailRegistrar::create({domains, ports}, &made, kept, options) != Status::kOk)
      return nullptr;
    return made;
  }
  std::unique_ptr<IbvRegistrar> made;
  if (IbvRegistrar::create(ports_.all[0].device.pd, &made, options) != Status::kOk) return nullptr;
  made->keep_back(kept);
  return made;
}

// ---- the fast paths ----

// Fills in the request for the operation, with the send flags `flags`, and adds it to the send queue.
template <bool kIsPut>
inline void Operations::prepare_request(Peer& peer, SendRequest& request,
                                        const Operation& operation, uint32_t flags) noexcept {
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

// Not inline: put() and get() jump to it before they have saved a register. Without the lock few are saved,
// because the loop of a lock is a call.
template <bool kIsPut, bool kLocks, bool kHasFence>
[[gnu::noinline]] Status Operations::begin(Rank rank, const Pinned& remote, const Pinned& local,
                                           size_t bytes, Completion* completion) noexcept {
  constexpr bool kMayNeedFence = kIsPut && !kHasFence;
  Peer* const found = peers_.find(rank);
  if (found == nullptr) [[unlikely]]
    return contact_->start_connection(rank);
  Peer& peer = *found;
  if (remote.key == nullptr || (local.key == nullptr && !is_copied<kIsPut>(bytes)) ||
      bytes > at_once<kMayNeedFence>(peer)) [[unlikely]] {
    if constexpr (kMayNeedFence)
      return begin_rare_put<kLocks>(peer, remote, local, bytes, completion);
    return begin_in_pieces(kIsPut, peer, remote, local, bytes, completion);
  }
  const SpinGuard guard(peer.lock, kLocks);
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
inline size_t Operations::begin_list(Rank rank, std::span<const Operation> list) noexcept {
  Peer* const found = peers_.find(rank);
  if (found == nullptr) return 0;
  Peer& peer = *found;
  SendRequest requests[CompletionBatch::kCapacity];
  const SpinGuard guard(peer.lock, threaded_);
  const uint64_t before = peer.send.posted();
  uint32_t count = 0;
  for (; count < std::min<size_t>(list.size(), CompletionBatch::kCapacity); ++count) {
    const Operation& next = list[count];
    if (next.remote.key == nullptr ||
        (next.local.key == nullptr && !is_copied<kIsPut>(next.bytes)) ||
        next.bytes > at_once<kIsPut>(peer) || !is_ready(peer))
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

// A put with a fence, a long one, or one that cannot be posted now.
template <bool kLocks>
[[gnu::noinline]] Status Operations::begin_rare_put(Peer& peer, const Pinned& remote,
                                                    const Pinned& local, size_t bytes,
                                                    Completion* completion) noexcept {
  {
    const SpinGuard guard(peer.lock, kLocks);
    if (!is_ready(peer)) return report_not_ready(peer);
  }
  if (at_once<true>(peer) != 0)
    return begin_in_pieces(true, peer, remote, local, bytes, completion);
  Completion* const write = fences_.begin(peer, completion);
  if (write == nullptr) return Status::kNotReady;
  const Status status = begin<true, kLocks, true>(peer.rank, remote, local, bytes, write);
  if (status != Status::kOk) fences_.cancel(*write);
  return status;
}

Status Operations::put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                       Completion* completion) noexcept {
  return threaded_ ? begin<true, true>(peer, remote, local, bytes, completion)
                   : begin<true, false>(peer, remote, local, bytes, completion);
}

Status Operations::get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                       Completion* completion) noexcept {
  return threaded_ ? begin<false, true>(peer, remote, local, bytes, completion)
                   : begin<false, false>(peer, remote, local, bytes, completion);
}

size_t Operations::put_list(Rank peer, std::span<const Operation> list) noexcept {
  return begin_list<true>(peer, list);
}

size_t Operations::get_list(Rank peer, std::span<const Operation> list) noexcept {
  return begin_list<false>(peer, list);
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

Status Operations::start_atomic(Rank rank, const Pinned& remote, const Pinned& local,
                                const Atomic& what, Completion* completion) noexcept {
  if (!has_atomics_)
    return fail(
        Status::kUnsupported,
        "%s has no remote atomic operations, or another device of HYDRANT_IBV_PORTS has not "
        "(ibv_devinfo -v: atomic_cap): send the owner of the word a request message instead",
        ports_.all[0].name);
  if (remote.addr % sizeof(uint64_t) != 0)
    return fail(Status::kBadArg,
                "an atomic operation on the word at %#zx: its address has to be a multiple of %zu",
                static_cast<size_t>(remote.addr), sizeof(uint64_t));
  if (remote.key == nullptr || local.key == nullptr)
    return fail_literal(Status::kBadArg,
                        "an atomic operation: the remote word or the local result has no key");
  Peer* const found = peers_.find(rank);
  if (found == nullptr)
    return rank == self_ ? contact_->connect_to_self() : contact_->start_connection(rank);
  Peer& peer = *found;
  SendRequest request;
  request.piece = {local.addr, sizeof(uint64_t), load_key(local.key).lkey};
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.work.wr.atomic.remote_addr = remote.addr;
  request.work.wr.atomic.rkey = load_key(remote.key).rkey;
  if (what.kind == Atomic::Kind::kFetchAdd) {
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
template <bool kLocks>
class Operations::IbvPersistentRequest final : public PersistentRequest {
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
    const SpinGuard guard(peer_.lock, kLocks);
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

std::unique_ptr<PinnedOperations::PersistentRequest> Operations::prepare(bool is_put, Rank rank,
                                                                         uintptr_t remote,
                                                                         uintptr_t local,
                                                                         size_t bytes) noexcept {
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr || bytes > (is_put ? at_once<true>(*peer) : max_at_once_)) return nullptr;
  const auto length = static_cast<uint32_t>(bytes);
  PersistentRequest* made = nullptr;
  if (threaded_)
    made =
        new (std::nothrow) IbvPersistentRequest<true>(*this, *peer, is_put, remote, local, length);
  else
    made =
        new (std::nothrow) IbvPersistentRequest<false>(*this, *peer, is_put, remote, local, length);
  return std::unique_ptr<PersistentRequest>(made);
}

std::unique_ptr<PinnedOperations::PersistentRequest> Operations::make_persistent_put(
    Rank peer, uintptr_t remote, uintptr_t local, size_t bytes) noexcept {
  return prepare(true, peer, remote, local, bytes);
}

std::unique_ptr<PinnedOperations::PersistentRequest> Operations::make_persistent_get(
    Rank peer, uintptr_t remote, uintptr_t local, size_t bytes) noexcept {
  return prepare(false, peer, remote, local, bytes);
}

}  // namespace hydrant::ibv
