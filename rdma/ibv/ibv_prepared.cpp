// Puts and gets whose work request is made once. What a start changes of it: which record its completion
// names, and the keys.
//
// Keys are written anew by each start, and not compared: that costs as much, and no start can be wrong about
// memory that was pinned anew meanwhile.
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <cstddef>
#include <cstring>
#include <new>

namespace hydrant {

using ibv::Peer;
using ibv::SendRecord;

class IbvTransport::PreparedRequest final : public Transport::Prepared {
 public:
  PreparedRequest(IbvTransport& transport, Peer& peer, bool is_put, uintptr_t remote,
                  uintptr_t local, uint32_t bytes) noexcept
      : transport_(transport),
        peer_(peer),
        needs_local_key_(!is_put || bytes > transport.options_.inline_bytes) {
    request_.piece.addr = local;
    request_.piece.length = bytes;
    request_.work.sg_list = &request_.piece;
    request_.work.num_sge = bytes != 0 ? 1 : 0;
    request_.work.opcode = is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request_.work.send_flags = IBV_SEND_SIGNALED | (needs_local_key_ ? 0 : IBV_SEND_INLINE);
    request_.work.wr.rdma.remote_addr = remote;
  }

  // Without any lock.
  Status start(const std::byte* remote_key, const std::byte* local_key,
               Completion* completion) noexcept override {
    if (remote_key == nullptr || (local_key == nullptr && needs_local_key_)) [[unlikely]]
      return fail(Status::kBadArg, "memory without a key");
    const Guard guard(peer_.lock, transport_.threaded_);
    if (!transport_.takes_operation(peer_)) [[unlikely]]
      return transport_.why_no_operation(peer_);
    SendRecord& record = peer_.records[peer_.posted & transport_.record_mask_];
    record.position = peer_.posted;
    record.completion = completion;
    record.holds = SendRecord::Holds::kOperation;
    peer_.signalled = ++peer_.posted;
    request_.work.wr_id = reinterpret_cast<uintptr_t>(&record) | 1;
    std::memcpy(&request_.work.wr.rdma.rkey, remote_key + offsetof(IbvKey, rkey),
                sizeof request_.work.wr.rdma.rkey);
    if (needs_local_key_)
      std::memcpy(&request_.piece.lkey, local_key + offsetof(IbvKey, lkey),
                  sizeof request_.piece.lkey);
    if (transport_.hand_over(peer_, &request_.work, 1)) [[likely]]
      return Status::kOk;
    // It ends when the peer is lost, which is soon.
    const ibv_sge& piece = request_.piece;
    const Operation* waits =
        transport_.begin_waiting(peer_, !is_get(), {request_.work.wr.rdma.remote_addr, remote_key},
                                 {piece.addr, local_key}, piece.length, completion);
    return waits != nullptr ? Status::kOk : Status::kNotReady;
  }

 private:
  using Operation = ibv::Operation;
  bool is_get() const noexcept { return request_.work.opcode == IBV_WR_RDMA_READ; }

  IbvTransport& transport_;
  Peer& peer_;  // kept for the transport's life
  Peer::Request request_;
  const bool needs_local_key_;
};

std::unique_ptr<Transport::Prepared> IbvTransport::prepare(bool is_put, Rank rank, uintptr_t remote,
                                                           uintptr_t local, size_t bytes) noexcept {
  Peer* const peer = peer_of(rank);
  if (peer == nullptr || bytes > max_at_once_) return nullptr;
  return std::unique_ptr<Prepared>(new (std::nothrow) PreparedRequest(
      *this, *peer, is_put, remote, local, static_cast<uint32_t>(bytes)));
}

std::unique_ptr<Transport::Prepared> IbvTransport::prepare_put(Rank peer, uintptr_t remote,
                                                               uintptr_t local,
                                                               size_t bytes) noexcept {
  return prepare(true, peer, remote, local, bytes);
}

std::unique_ptr<Transport::Prepared> IbvTransport::prepare_get(Rank peer, uintptr_t remote,
                                                               uintptr_t local,
                                                               size_t bytes) noexcept {
  return prepare(false, peer, remote, local, bytes);
}

}  // namespace hydrant
