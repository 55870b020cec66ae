// Long puts and gets, cut over the rails: posting, and what the rails' completion queues say. Under the lock
// of the peer, but where it says otherwise. Setting up and connection: ibv_rail_peers.cpp.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

namespace hydrant {

using ibv::Peer;
using ibv::PeerRail;
using ibv::PeerRails;
using ibv::Rail;
using ibv::RailRecord;
using ibv::Share;

namespace {

constexpr uint32_t kMostShares = ibv::kMostRails - 1;
constexpr uint32_t kFenceBytes = 8;
// One entry of a send queue is kept for the end of the connection; see shut_rails().
constexpr uint32_t kKept = 1;
// Shares begin at multiples of this in the target's memory, so that no two adapters write to one line of it.
constexpr uintptr_t kCut = 4096;

IbvKey key_at(const std::byte* keys, uint32_t port) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, keys + size_t{port} * sizeof loaded, sizeof loaded);
  return loaded;
}

bool is_in(uint32_t rails, uint32_t index) noexcept { return (rails >> index & 1) != 0; }

}  // namespace

// ---- beginning ----

// Those by which a long put or get goes now; 0: by the first port alone. Messages wait until a put in shares
// is over. One that has been refused because of it must not wait for ever behind others that are begun
// meanwhile: they keep to the first queue pair, whose order holds, until a message has been sent, or so many
// of them have been.
uint32_t IbvTransport::rails_for(Peer& peer, bool is_put) noexcept {
  if (peer.rails == nullptr) return 0;
  PeerRails& rails = *peer.rails;
  if (is_put && rails.unstriped != 0) {
    if (peer.sent[0] + peer.sent[1] == rails.messages) {
      --rails.unstriped;
      return 0;
    }
    rails.unstriped = 0;
  }
  return rails.usable.load(std::memory_order_relaxed);
}

// What one of them has got is not all posted yet.
bool IbvTransport::rails_wait(const Peer& peer, uint32_t rails) noexcept {
  for (uint32_t i = 0; i < kMostShares; ++i) {
    if (is_in(rails, i) && peer.rails->rails[i].waiting != nullptr) return true;
  }
  return false;
}

// Equal shares: the operation keeps the first.
void IbvTransport::add_shares(Peer& peer, ibv::Operation& operation, uint32_t rails,
                              const Pinned& remote, const Pinned& local, size_t bytes) noexcept {
  const auto parts = static_cast<uint32_t>(std::popcount(rails)) + 1;
  const auto cut_of = [&](uint32_t part) {
    if (part == parts) return bytes;
    const uintptr_t cut = (remote.addr + bytes / parts * part) & ~(kCut - 1);
    return static_cast<size_t>(std::max(cut, remote.addr) - remote.addr);
  };
  Share* const shares = &shares_[static_cast<size_t>(&operation - operations_.get()) * kMostShares];
  operation.left = cut_of(1);
  uint32_t part = 1;
  for (uint32_t i = 0; i < kMostShares; ++i) {
    if (!is_in(rails, i)) continue;
    const size_t from = cut_of(part);
    shares[i] = {.operation = &operation,
                 .local = local.addr + from,
                 .remote = remote.addr + from,
                 .left = cut_of(++part) - from,
                 .lkey = key_at(local.key, i + 1).lkey,
                 .rkey = key_at(remote.key, i + 1).rkey,
                 .is_put = operation.is_put};
    ++operation.under_way;
    ++peer.rails->shares;
    shares_under_way_.fetch_add(1, std::memory_order_relaxed);
    if (operation.is_put) peer.held += Peer::kHeldByShare;
    peer.rails->rails[i].waiting = &shares[i];
  }
  counts_.striped.fetch_add(1, std::memory_order_relaxed);
  advance_rails(peer);
}

// ---- posting ----

void IbvTransport::advance_rails(Peer& peer) noexcept {
  for (uint32_t i = 0; i < rail_count_; ++i) {
    if (peer.rails->rails[i].waiting != nullptr && advance_rail(peer, i))
      peer.rails->rails[i].waiting = nullptr;
  }
}

// True: all of what waits is posted.
bool IbvTransport::advance_rail(Peer& peer, uint32_t index) noexcept {
  const Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  Share& share = *end.waiting;
  ibv_sge piece{};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  while (share.left != 0) {
    const auto most = std::max(rail.port.max_message_bytes, 1u);
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(share.left, most));
    piece = {share.local, bytes, share.lkey};
    request.opcode = share.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = share.remote;
    request.wr.rdma.rkey = share.rkey;
    const bool is_last = bytes == share.left && !share.is_put;
    if (!post_on_rail(peer, index, &request, is_last ? &share : nullptr)) return false;
    share.local += bytes;
    share.remote += bytes;
    share.left -= bytes;
    if (is_last) return true;
  }
  piece = {reinterpret_cast<uintptr_t>(rail.fence.data()) + kFenceBytes, kFenceBytes,
           rail.fence.lkey()};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = end.their_fence;
  request.wr.rdma.rkey = end.their_fence_key;
  return post_on_rail(peer, index, &request, &share);
}

// False: there is no room, or the adapter takes nothing any more.
bool IbvTransport::post_on_rail(Peer& peer, uint32_t index, ibv_send_wr* request,
                                Share* over) noexcept {
  const Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  if (end.posted - end.over + kKept >= rail.depth) return false;
  RailRecord& record = end.records[end.posted & rail.mask];
  record = {&peer, index, end.posted, over};
  request->wr_id = reinterpret_cast<uintptr_t>(&record);
  request->send_flags = 0;
  // Others are told of in passing, by the next one that is.
  const bool is_told = over != nullptr || end.posted + 1 - end.signalled >= rail.depth / 4;
  if (is_told) request->send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(end.queue.get(), request, &bad); error != 0) {
    log_error("%s port %u: what is sent to %s is not taken: %s", rail.port.name, rail.port.number,
              name_of(peer).text, errno_text(error));
    if (!peer.is_shut.load(std::memory_order_relaxed)) {
      std::snprintf(end.refusal, sizeof end.refusal,
                    "its queue pair on %s port %u takes nothing more", rail.port.name,
                    rail.port.number);
      peer.shut_reason = end.refusal;
      peer.is_shut.store(true, std::memory_order_release);
    }
    return false;
  }
  ++end.posted;
  if (is_told) end.signalled = end.posted;
  return true;
}

// ---- the end of shares ----

// Without any lock. Answers how many operations are over.
uint32_t IbvTransport::drain_rails() noexcept HYDRANT_NO_TSA {
  if (threaded_ && !rails_lock_.try_lock()) return 0;
  uint32_t told = 0;
  for (uint32_t i = 0; i < rail_count_; ++i) {
    if (rails_[i].completions == nullptr) continue;
    ibv_wc completions[kBatch];
    const int count = ibv_poll_cq(rails_[i].completions.get(), kBatch, completions);
    for (int j = 0; j < count; ++j) told += finish_on_rail(completions[j]);
    if (count >= 0) continue;
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: the completion queue of port %u cannot be read", rails_[i].port.name,
                rails_[i].port.number);
    lose_all("the completion queue of a rail cannot be read");
  }
  if (threaded_) rails_lock_.unlock();
  return told;
}

// Without any lock.
uint32_t IbvTransport::finish_on_rail(const ibv_wc& completion) noexcept {
  const RailRecord& record = *reinterpret_cast<const RailRecord*>(completion.wr_id);
  Peer& peer = *record.peer;
  const ibv::Port& port = rails_[record.rail].port;
  PeerRail& end = peer.rails->rails[record.rail];
  const Status status = ibv::status_of(completion.status);
  Finished finished;
  bool is_first_error = false;
  {
    const Guard guard(peer.lock, threaded_);
    if (status != Status::kOk) is_first_error = !std::exchange(end.has_failed, true);
    end.over = record.position + 1;
    // A failure before has ended what comes after it.
    if (record.share != nullptr) end_share(peer, *record.share, status, &finished);
  }
  uint32_t told = tell(finished);
  if (is_first_error && peer.state.load(std::memory_order_acquire) != Peer::State::kLost) {
    const char* text = ibv_wc_status_str(completion.status);
    log_warning("%s port %u: what was sent to %s at %s has failed: %s (%#x)", port.name,
                port.number, name_of(peer).text, text_of(peer.card.address).text, text,
                completion.vendor_err);
    std::snprintf(end.failure, sizeof end.failure, "%s, on %s port %u", text, port.name,
                  port.number);
    lose(peer, end.failure);
  }
  if (peer.state.load(std::memory_order_acquire) == Peer::State::kLost)
    told += give_up_shares(peer);
  return told;
}

void IbvTransport::end_share(Peer& peer, const Share& share, Status status,
                             Finished* finished) noexcept {
  --peer.rails->shares;
  shares_under_way_.fetch_sub(1, std::memory_order_relaxed);
  if (share.is_put) peer.held -= Peer::kHeldByShare;
  finish_piece(*share.operation, status, finished);
}

// Of a peer that is lost: shares that are not all posted, as soon as the adapter has given back what is.
// Without any lock.
uint32_t IbvTransport::give_up_shares(Peer& peer) noexcept {
  if (peer.rails == nullptr) return 0;
  Finished finished;
  {
    const Guard guard(peer.lock, threaded_);
    for (PeerRail& end : peer.rails->rails) {
      if (end.waiting != nullptr && end.over == end.posted)
        end_share(peer, *std::exchange(end.waiting, nullptr), Status::kBroken, &finished);
    }
  }
  return tell(finished);
}

// Of a peer that is lost. What has been carried out unasked is told of by nobody: so one thing more is
// posted, which comes back as soon as all before it has. Without any lock.
void IbvTransport::shut_rails(Peer& peer) noexcept {
  if (peer.rails == nullptr) return;
  for (uint32_t i = 0; i < rail_count_; ++i) {
    const PeerRail& end = peer.rails->rails[i];
    if (end.queue == nullptr) continue;
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_ERR;
    if (const int error = ibv_modify_qp(end.queue.get(), &state, IBV_QP_STATE); error != 0)
      log_warning("%s port %u: the queue pair to %s cannot be shut: %s", rails_[i].port.name,
                  rails_[i].port.number, name_of(peer).text, errno_text(error));
  }
  const Guard guard(peer.lock, threaded_);
  for (uint32_t i = 0; i < rail_count_; ++i) {
    PeerRail& end = peer.rails->rails[i];
    if (end.posted == end.over) continue;
    RailRecord& record = end.records[end.posted & rails_[i].mask];
    record = {&peer, i, end.posted, nullptr};
    ibv_send_wr request{};
    request.wr_id = reinterpret_cast<uintptr_t>(&record);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    // One that is not taken is not waited for: what was posted may then never be told of.
    if (ibv_post_send(end.queue.get(), &request, &bad) == 0) {
      ++end.posted;
    } else {
      end.over = end.posted;
    }
  }
}

}  // namespace hydrant
