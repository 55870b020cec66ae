// Cuts long puts and gets, and posts the stripes of the rails. Tour "a put": one of HYDRANT_IBV_STRIPE_MIN
// bytes and more passes here if the process has several ports.
#include "rdma/ibv/transfer/striping.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace hydrant::ibv {

namespace {

constexpr uint32_t kFenceBytes = 8;
// An entry of each rail's send queue is kept for the request that post_tails() posts.
constexpr uint32_t kKeptEntries = 1;
// Stripes begin at multiples of this in the target's memory, so that no two adapters write to one cache line.
constexpr uintptr_t kCut = 4096;

IbvKey key_at(const std::byte* keys, uint32_t port) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, keys + size_t{port} * sizeof loaded, sizeof loaded);
  return loaded;
}

bool is_in(uint32_t rails, uint32_t index) noexcept { return (rails >> index & 1) != 0; }

}  // namespace

// The order of writes to the peer by this rail: that of the end that promises less.
PutOrder Striping::order_of(const Peer& peer, uint32_t index) const noexcept {
  return std::max(rails_[index].port.order, peer.endpoint.rails[index].put_order());
}

// No read shows writes of relaxed adapters, so they have no fence, and the first port takes puts alone.
//
// Messages wait until a striped put has ended. A message that was refused because of such a put must not wait
// behind an endless series of them. So the next puts use the first port alone, where messages may follow at
// once, until a message has been sent or kUnstriped puts have been posted.
uint32_t Striping::usable_rails(Peer& peer, bool is_put) const noexcept {
  PeerRails& rails = *peer.rails;
  const uint32_t usable = rails.usable.load(std::memory_order_relaxed);
  for (uint32_t i = 0; is_put && i < rails_.count(); ++i) {
    if (is_in(usable, i) && order_of(peer, i) == PutOrder::kRelaxed) return 0;
  }
  if (is_put && rails.unstriped != 0) {
    if (peer.credits.messages_sent() == rails.messages) {
      --rails.unstriped;
      return 0;
    }
    rails.unstriped = 0;
  }
  return usable;
}

bool Striping::is_busy(const Peer& peer, uint32_t rails) noexcept {
  for (uint32_t i = 0; i < Rails::kMax; ++i) {
    if (is_in(rails, i) && peer.rails->rails[i].waiting != nullptr) return true;
  }
  return false;
}

void Striping::begin(Peer& peer, PooledOperation& operation, uint32_t rails,
                     const PinnedOperations::Pinned& remote,
                     const PinnedOperations::Pinned& local) noexcept {
  const size_t bytes = operation.left;
  const auto parts = static_cast<uint32_t>(std::popcount(rails)) + 1;
  const auto cut_of = [&](uint32_t part) {
    if (part == parts) return bytes;
    const uintptr_t cut = (remote.addr + bytes / parts * part) & ~(kCut - 1);
    return static_cast<size_t>(std::max(cut, remote.addr) - remote.addr);
  };
  Stripe* const stripes = pool_.stripes_of(operation);
  operation.left = cut_of(1);
  uint32_t part = 1;
  for (uint32_t i = 0; i < Rails::kMax; ++i) {
    if (!is_in(rails, i)) continue;
    const size_t from = cut_of(part);
    stripes[i] = {.operation = &operation,
                  .local = local.addr + from,
                  .remote = remote.addr + from,
                  .left = cut_of(++part) - from,
                  .lkey = key_at(local.key, i + 1).lkey,
                  .rkey = key_at(remote.key, i + 1).rkey,
                  .is_put = operation.is_put,
                  .awaits_writes = operation.is_put && order_of(peer, i) != PutOrder::kOrdered &&
                                   !has_defect(Defect::kEarlyFence),
                  .rail = static_cast<uint8_t>(i)};
    ++operation.under_way;
    ++peer.rails->stripes;
    stripes_in_flight_.fetch_add(1, std::memory_order_relaxed);
    if (operation.is_put) peer.pending.add_put_stripe();
    peer.rails->rails[i].waiting = &stripes[i];
  }
  counters_.striped.add();
  advance(peer);
}

void Striping::advance(Peer& peer) noexcept {
  for (uint32_t i = 0; i < rails_.count(); ++i) {
    PeerRail& end = peer.rails->rails[i];
    while (end.unfenced != nullptr && post_fence(peer, i, *end.unfenced))
      end.unfenced = end.unfenced->next;
    if (end.waiting != nullptr && advance_rail(peer, i)) end.waiting = nullptr;
  }
}

// Posts requests of the waiting stripe, and for a put the fence, if it need not wait. True: all are posted.
bool Striping::advance_rail(Peer& peer, uint32_t index) noexcept {
  const Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  Stripe& stripe = *end.waiting;
  SendRequest request;
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  while (stripe.left != 0) {
    const auto most = std::max(rail.port.max_message_bytes, 1u);
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(stripe.left, most));
    request.piece = {stripe.local, bytes, stripe.lkey};
    request.work.opcode = stripe.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.work.wr.rdma.remote_addr = stripe.remote;
    request.work.wr.rdma.rkey = stripe.rkey;
    const bool is_last = bytes == stripe.left &&
                         (!stripe.is_put || stripe.awaits_writes || has_defect(Defect::kNoFence));
    if (!post(peer, end, request.work, is_last ? &stripe : nullptr)) return false;
    stripe.local += bytes;
    stripe.remote += bytes;
    stripe.left -= bytes;
    if (is_last) return true;
  }
  return post_fence(peer, index, stripe);
}

bool Striping::post_fence(Peer& peer, uint32_t index, Stripe& stripe) noexcept {
  const Rail& rail = rails_[index];
  PeerRail& end = peer.rails->rails[index];
  SendRequest request;
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.piece = {reinterpret_cast<uintptr_t>(rail.fence.data()) + kFenceBytes, kFenceBytes,
                   rail.fence.lkey()};
  request.work.opcode = IBV_WR_RDMA_READ;
  request.work.wr.rdma.remote_addr = end.their_fence;
  request.work.wr.rdma.rkey = end.their_fence_key;
  return post(peer, end, request.work, &stripe);
}

// `ends`: the stripe that ends with the request. False: there is no room, or the adapter refuses requests.
bool Striping::post(Peer& peer, PeerRail& end, ibv_send_wr& request, Stripe* ends) noexcept {
  if (end.send.room() <= kKeptEntries) return false;
  request.send_flags = 0;
  SendRecord& record = end.send.add(request, ends != nullptr);
  if (ends != nullptr) {
    record.holds = SendRecord::Holds::kStripe;
    record.stripe = ends;
  }
  ibv_send_wr* bad = nullptr;
  const int error = end.send.post(&request, &bad);
  if (error == 0) return true;
  (void)end.send.undo_unposted();
  log_error("%s port %u: requests to %s are refused: %s", end.send.port().name,
            end.send.port().number, name_of(peer).text, errno_text(error));
  if (!peer.state.is_refused())
    peer.state.refuse(end.send.describe_failure("its queue pair accepts no requests"));
  return false;
}

void Striping::complete_stripe(Peer& peer, Stripe& stripe, Status status,
                               CompletionBatch* batch) noexcept {
  if (stripe.awaits_writes && status == Status::kOk && !has_defect(Defect::kNoFence)) {
    stripe.awaits_writes = false;
    stripe.next = std::exchange(peer.rails->rails[stripe.rail].unfenced, &stripe);
    return;
  }
  --peer.rails->stripes;
  stripes_in_flight_.fetch_sub(1, std::memory_order_relaxed);
  if (stripe.is_put) peer.pending.complete_put_stripe();
  pool_.end_part(*stripe.operation, status, batch);
}

void Striping::fail_waiting(Peer& peer, CompletionBatch* batch) noexcept {
  if (peer.rails == nullptr) return;
  for (PeerRail& end : peer.rails->rails) {
    if (end.send.used() != 0) continue;
    while (end.unfenced != nullptr && !batch->is_full())
      complete_stripe(peer, *std::exchange(end.unfenced, end.unfenced->next), Status::kBroken,
                      batch);
    if (end.waiting != nullptr && !batch->is_full())
      complete_stripe(peer, *std::exchange(end.waiting, nullptr), Status::kBroken, batch);
  }
}

// Ends the unsignalled requests of each rail, whose success the adapter does not report: a signalled last
// request completes and ends them.
bool Striping::post_tails(Peer& peer) noexcept {
  if (peer.rails == nullptr) return true;
  bool are_posted = true;
  for (PeerRail& end : peer.rails->rails) {
    if (!end.send.is_open() || end.send.used() == 0) continue;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    (void)end.send.add(request, true);
    ibv_send_wr* bad = nullptr;
    if (end.send.post(&request, &bad) == 0) continue;
    (void)end.send.undo_unposted();
    are_posted = false;
  }
  return are_posted;
}

}  // namespace hydrant::ibv
