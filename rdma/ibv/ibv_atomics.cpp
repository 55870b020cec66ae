// Atomic operations on a peer's word. Each is one work request and answers like a read: the adapter counts it
// among those (max_rd_atomic of the queue pair), and its record is that of any operation.
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <cstring>

namespace hydrant {

using ibv::Peer;
using ibv::SendRecord;

namespace {

constexpr uint32_t kWordBytes = 8;

IbvKey key_at(const std::byte* key) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, key, sizeof loaded);
  return loaded;
}

}  // namespace

Status IbvTransport::check_atomic(const Pinned& remote, const Pinned& local) const noexcept {
  if (!has_atomics_)
    return fail(
        Status::kUnsupported,
        "%s has no remote atomic operations, or another device of HYDRANT_IBV_PORTS has not "
        "(ibv_devinfo -v: atomic_cap): let the owner of the word do it, asked by a message",
        port_.name);
  if (remote.addr % kWordBytes != 0)
    return fail(Status::kBadArg,
                "an atomic operation on the word at %#zx: its address has to be a multiple of %u",
                static_cast<size_t>(remote.addr), kWordBytes);
  if (remote.key == nullptr || local.key == nullptr)
    return fail(Status::kBadArg, "memory without a key");
  return Status::kOk;
}

// Without any lock.
Status IbvTransport::start_atomic(Rank rank, const Pinned& remote, const Pinned& local,
                                  const Atomic& what, Completion* completion) noexcept {
  if (const Status status = check_atomic(remote, local); status != Status::kOk) return status;
  Peer* const peer = peer_of(rank);
  if (peer == nullptr) return contact(rank);
  ibv_sge piece = {local.addr, kWordBytes, key_at(local.key).lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic.remote_addr = remote.addr;
  request.wr.atomic.rkey = key_at(remote.key).rkey;
  if (what.kind == Atomic::Kind::kFetchAdd) {
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.wr.atomic.compare_add = what.operand;
  } else {
    request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    request.wr.atomic.compare_add = what.expected;
    request.wr.atomic.swap = what.operand;
  }
  const Guard guard(peer->lock, threaded_);
  if (!takes_operation(*peer)) return why_no_operation(*peer);
  SendRecord& record = next_record(*peer, &request, true);
  record.completion = completion;
  record.holds = SendRecord::Holds::kOperation;
  if (hand_over(*peer, &request, 1)) return Status::kOk;
  // Done twice it would be wrong, so nobody tries again.
  return fail(Status::kBroken, "%s is gone: its queue pair takes nothing more",
              name_of(*peer).text);
}

}  // namespace hydrant
