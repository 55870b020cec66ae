// What belongs to one peer: made at first contact, connected, lost.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_queue_pair.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace hydrant {

using ibv::Peer;
using ibv::Received;

namespace {

constexpr uint8_t kHops = 64;

}  // namespace

Status IbvTransport::check_settings(const ibv::PeerName& who,
                                    const ibv::Card& card) const noexcept {
  if (card.geometry != geometry()) {
    return fail(Status::kBroken,
                "%s has other settings than this one: messages of %u bytes, not %u; cells of "
                "%u, not %u; %u credits, not %u; %u landing cells, not %u (HYDRANT_AM_EAGER and "
                "HYDRANT_IBV_CREDITS have to be the same on all ranks)",
                who.text, card.geometry.message_bytes, message_bytes(), card.geometry.cell_bytes,
                options_.cell_bytes, card.geometry.credits, options_.credits,
                card.geometry.landings, options_.landings);
  }
  if ((card.address.is_ethernet != 0) != port_.is_ethernet)
    return fail(Status::kBroken,
                "%s talks by %s, this one by %s: choose with "
                "HYDRANT_IBV_PORTS",
                who.text, port_.is_ethernet ? "InfiniBand" : "Ethernet",
                port_.is_ethernet ? "Ethernet" : "InfiniBand");
  return Status::kOk;
}

// Everything is there before the peer is shown to others; what was made until an error is given back.
Status IbvTransport::make_peer(Rank rank, Rank their_rank, const ibv::Card& card,
                               Peer** made) noexcept {
  const ibv::PeerName who = name_of(rank, their_rank, card.group);
  Status status = check_settings(who, card);
  if (status == Status::kOk) status = make_room_for_peer();
  if (status != Status::kOk) return status;
  std::unique_ptr<Peer> peer(new (std::nothrow) Peer);
  if (peer == nullptr) return fail(Status::kResource, "no memory for %s", who.text);
  peer->rank = rank;
  peer->their_rank = their_rank;
  peer->card = card;
  status = fill_peer(*peer);
  if (status == Status::kOk) status = make_address(*peer);
  if (status == Status::kOk) status = make_queue_pair(*peer);
  if (status != Status::kOk) return status;

  make_peer_rails(*peer);

  // From here on its buffers may be anybody's, and nothing is taken back.
  const uint32_t count = receives_per_peer();
  peer->next = std::exchange(first_peer_, peer.get());
  ++peer_count_;
  Peer& kept = *peer.release();
  for (uint32_t i = 0; i < count; ++i) recycle(kept.received[i]);
  peers_[rank].store(&kept, std::memory_order_release);
  *made = &kept;
  return Status::kOk;
}

// Room for all that this peer can put into the queues at worst: every buffer that was posted for it, and
// every entry of its send queue.
Status IbvTransport::make_room_for_peer() noexcept HYDRANT_NO_TSA {
  const uint64_t peers = peer_count_ + 1;
  if (peers * receives_per_peer() > port_.max_receives)
    return fail(Status::kResource,
                "%s: the shared receive queue holds %u buffers, %u peers have them all (%u each): "
                "fewer credits (HYDRANT_IBV_CREDITS)",
                port_.name, port_.max_receives, peer_count_, receives_per_peer());
  const uint64_t needed = peers * completions_per_peer();
  if (needed <= completions_) return Status::kOk;
  if (needed > port_.max_completions)
    return fail(
        Status::kResource,
        "%s: a completion queue holds at most %u entries, %u peers have them all (%u each): "
        "fewer credits (HYDRANT_IBV_CREDITS), or a shorter send queue",
        port_.name, port_.max_completions, peer_count_, completions_per_peer());
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(needed * 2, port_.max_completions));
  // Nobody may read from it meanwhile.
  while (threaded_ && !drain_lock_.try_lock()) sched_yield();
  const int error = ibv_resize_cq(queue_.get(), static_cast<int>(wanted));
  if (threaded_) drain_lock_.unlock();
  if (error != 0)
    return fail(Status::kResource, "%s: the completion queue cannot grow from %u to %u entries: %s",
                port_.name, completions_, wanted, errno_text(error > 0 ? error : errno));
  completions_ = wanted;
  return Status::kOk;
}

Status IbvTransport::fill_peer(Peer& peer) noexcept {
  // A slot may be reserved, and one more per lane wait for a landing cell, beside what the queue holds.
  const uint32_t slots = options_.send_depth + kLaneCount + 1;
  const uint32_t count = receives_per_peer();
  Status status = peer.buffers.open(port_.device.pd, size_t{slots + count} * slot_bytes_,
                                    IBV_ACCESS_LOCAL_WRITE, "a peer's messages");
  if (status == Status::kOk) {
    status = peer.landings.open(port_.device.pd,
                                size_t{kLaneCount} * options_.landings * options_.cell_bytes,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, "a peer's cells");
  }
  if (status != Status::kOk) return status;
  peer.received.reset(new (std::nothrow) Received[count]);
  peer.records.reset(new (std::nothrow) ibv::SendRecord[record_mask_ + 1]);
  peer.free_slots.reset(new (std::nothrow) uint16_t[slots]);
  peer.landing_free_after.reset(new (std::nothrow)
                                    uint64_t[size_t{kLaneCount} * options_.landings]());
  if (peer.received == nullptr || peer.records == nullptr || peer.free_slots == nullptr ||
      peer.landing_free_after == nullptr)
    return fail(Status::kResource, "no memory for a peer's messages");
  for (uint32_t i = 0; i <= record_mask_; ++i) peer.records[i].peer = &peer;
  for (Peer::Request* request : {&peer.message, &peer.cell, &peer.operation}) {
    request->work.sg_list = &request->piece;
    request->work.num_sge = 1;
  }
  peer.message.piece.lkey = peer.buffers.lkey();
  peer.message.work.opcode = IBV_WR_SEND;
  peer.cell.work.opcode = IBV_WR_RDMA_WRITE;
  peer.cell.work.next = &peer.message.work;
  for (uint32_t i = slots; i-- != 0;) give_slot_back(peer, i);
  for (uint32_t i = 0; i < count; ++i) {
    Received& received = peer.received[i];
    received.data = slot_of(peer, slots + i);
    received.piece = {reinterpret_cast<uintptr_t>(received.data), slot_bytes_, peer.buffers.lkey()};
    received.work.wr_id = reinterpret_cast<uintptr_t>(&received);
    received.work.sg_list = &received.piece;
    received.work.num_sge = 1;
  }
  return Status::kOk;
}

Status IbvTransport::make_address(Peer& peer) noexcept {
  ibv_ah_attr attributes{};
  attributes.dlid = peer.card.address.lid;
  attributes.port_num = port_.number;
  if (port_.is_ethernet) {
    attributes.is_global = 1;
    attributes.grh.dgid = peer.card.address.gid;
    attributes.grh.sgid_index = port_.gid_index;
    attributes.grh.hop_limit = kHops;
  }
  errno = 0;
  peer.address.reset(ibv_create_ah(port_.device.pd, &attributes));
  if (peer.address == nullptr)
    return fail(Status::kResource, "%s cannot address %s: %s (no route to it?)", port_.name,
                name_of(peer).text, errno_text(errno));
  return Status::kOk;
}

Status IbvTransport::make_queue_pair(Peer& peer) noexcept {
  ibv_qp_init_attr attributes{};
  attributes.qp_context = &peer;
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.srq = receives_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = options_.send_depth;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = options_.inline_bytes;
  errno = 0;
  peer.queue.reset(ibv_create_qp(port_.device.pd, &attributes));
  if (peer.queue == nullptr)
    return fail(Status::kResource,
                "%s gives no queue pair: %s (it has %u in all; memlock: ulimit -l)", port_.name,
                errno_text(errno), port_.max_queue_pairs);
  peer.first_sequence = ibv::draw_sequence();
  return ibv::start_queue_pair(peer.queue.get(), port_);
}

// To the queue pair that the greeting names.
Status IbvTransport::connect(Peer& peer, const ibv::Greeting& greeting) noexcept {
  const ibv::Address& there = greeting.card.address;
  const ibv::PeerName who = name_of(peer);
  const Status status = ibv::connect_queue_pair({.queue = peer.queue.get(),
                                                 .port = &port_,
                                                 .own_sequence = peer.first_sequence,
                                                 .timeout = options_.timeout,
                                                 .peer = who.text,
                                                 .gid = there.gid,
                                                 .lid = there.lid,
                                                 .mtu = there.mtu,
                                                 .number = greeting.queue_pair,
                                                 .sequence = greeting.sequence});
  if (status != Status::kOk) return status;
  peer.their_landings = greeting.landing;
  peer.their_landing_key = greeting.landing_key;
  peer.known_as = greeting.known_as;
  peer.heard = true;
  connect_rails(peer, greeting);
  return Status::kOk;
}

// ---- the end ----

// Nothing more goes to it. What is under way comes back by the completion queue, as failed; what is not
// posted yet is given up here. By a thread that polls and holds no lock of the peer.
void IbvTransport::lose(Peer& peer, const char* reason) noexcept {
  // The first reason is why: what fails or is buried afterwards only follows from it.
  const char* none = nullptr;
  peer.reason.compare_exchange_strong(none, reason, std::memory_order_relaxed);
  if (peer.state.exchange(Peer::State::kLost, std::memory_order_acq_rel) == Peer::State::kLost)
    return;
  counts_.lost.fetch_add(1, std::memory_order_relaxed);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_ERR;
  const int error = ibv_modify_qp(peer.queue.get(), &state, IBV_QP_STATE);
  if (error != 0)
    log_warning("%s: the queue pair to %s cannot be shut: %s", port_.name, name_of(peer).text,
                errno_text(error));
  shut_rails(peer);
  Finished finished;
  {
    const Guard guard(peer.lock, threaded_);
    for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
      ibv::Stalled& stalled = peer.stalled[static_cast<uint32_t>(lane)];
      if (!std::exchange(stalled.is_there, false)) continue;
      drop_cell(peer.rank, lane, stalled.cell);
      give_slot_back(peer, stalled.slot);
    }
    (void)tell_of_the_last(peer);
  }
  while (give_up_waiting(peer, &finished)) tell(finished);
  (void)give_up_shares(peer);
  // Who was buried is known to be gone.
  if (lost_ != nullptr && !buried_[peer.rank].load(std::memory_order_acquire)) {
    (void)why_lost(peer);
    lost_(peer.rank, last_error_text());
  }
}

// Of a lost peer: what the adapter has carried out unasked at the end of the send queue it tells nobody of.
// So one thing more is posted, which comes back behind it. True: there is nothing (more) of that kind.
bool IbvTransport::tell_of_the_last(Peer& peer) noexcept {
  if (peer.last_is_told || used_in_queue(peer) == 0) return true;
  if (room_in_queue(peer) == 0) {
    add_chore(peer);
    return false;
  }
  // (One that is not taken cannot be waited for.)
  peer.last_is_told = true;
  send_tail(peer);
  return true;
}

void IbvTransport::lose_all(const char* reason) noexcept {
  for (uint32_t rank = 0; rank < places_; ++rank) {
    if (Peer* peer = peer_of(rank)) lose(*peer, reason);
  }
}

Status IbvTransport::why_lost(const Peer& peer) const noexcept {
  return fail(Status::kBroken, "%s is gone: %s (its address was %s)", name_of(peer).text,
              peer.reason.load(std::memory_order_relaxed), text_of(peer.card.address).text);
}

void IbvTransport::bury(Rank rank) noexcept {
  if (rank >= ranks_ + joined_count_.load(std::memory_order_acquire)) return;
  buried_[rank].store(true, std::memory_order_release);
  any_buried_.store(true, std::memory_order_release);
}

void IbvTransport::bury_waiting() noexcept {
  if (!any_buried_.exchange(false, std::memory_order_acq_rel)) return;
  for (uint32_t rank = 0; rank < places_; ++rank) {
    if (!buried_[rank].load(std::memory_order_acquire)) continue;
    if (Peer* peer = peer_of(rank)) lose(*peer, "the job has buried it");
  }
}

}  // namespace hydrant
