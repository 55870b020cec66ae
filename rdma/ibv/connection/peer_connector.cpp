// Connects this side's queue pairs with those that the peer's handshake names. Tour "first contact": the
// peer's handshake leads to the connection here.
#include "rdma/ibv/connection/peer_connector.hpp"

#include "firehose/base/log.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"

#include <algorithm>

namespace hydrant::ibv {

Status PeerConnector::connect(Peer& peer, const Handshake& handshake) noexcept {
  if (!ports_.keep_descriptors()) return device_is_closed(ports_.all[0].name);
  Status status =
      fences_.set_up(peer, handshake.one_adapter, handshake.endpoint.address.put_order());
  if (status != Status::kOk) return status;
  const PeerName name = name_of(peer);
  status = connect_queue_pair({.queue = peer.send.pair(),
                               .port = &ports_.all[0],
                               .own_sequence = peer.connection.first_sequence,
                               .patience_ns = options_.patience_ns,
                               .peer = name.text,
                               .there = handshake.endpoint.address,
                               .number = handshake.queue_pair,
                               .sequence = handshake.sequence});
  if (status != Status::kOk) return status;
  peer.memory.peer_slots = handshake.receive_slot;
  peer.memory.peer_slot_key = handshake.slot_key;
  peer.index_at_peer = handshake.index_at_peer;
  peer.connection.can_receive = true;
  connect_rails(peer, handshake);
  return Status::kOk;
}

void PeerConnector::connect_rails(Peer& peer, const Handshake& handshake) noexcept {
  if (peer.rails == nullptr) return;
  const PeerName name = name_of(peer);
  const uint32_t both = std::min(rails_.count(), handshake.endpoint.rail_count);
  for (uint32_t i = 0; i < both; ++i) {
    PeerRail& end = peer.rails->rails[i];
    if (!end.send.is_open() || handshake.rails[i].queue_pair == 0) continue;
    const Status status = connect_queue_pair({.queue = end.send.pair(),
                                              .port = &rails_[i].port,
                                              .own_sequence = end.first_sequence,
                                              .patience_ns = options_.patience_ns,
                                              .peer = name.text,
                                              .there = handshake.endpoint.rails[i],
                                              .number = handshake.rails[i].queue_pair,
                                              .sequence = handshake.rails[i].sequence});
    end.is_ready = status == Status::kOk;
    end.their_fence = handshake.rails[i].fence;
    end.their_fence_key = handshake.rails[i].fence_key;
    if (!end.is_ready) log_warning(rail_limit_, "%s", last_error_text());
  }
}

Handshake PeerConnector::describe(const Peer& peer, uint64_t group) const noexcept {
  Handshake handshake;
  handshake.endpoint = own_.address(std::min(rails_.count(), peer.endpoint.rail_count));
  if (peer.endpoint.group != 0) handshake.endpoint.group = group;
  handshake.to_nonce = peer.endpoint.address.nonce;
  handshake.from = own_.self();
  handshake.to = peer.connection.their_rank;
  handshake.index_at_peer = peer.rank;
  handshake.queue_pair = peer.send.number();
  handshake.sequence = peer.connection.first_sequence;
  handshake.receive_slot = reinterpret_cast<uintptr_t>(peer.memory.receive_slots.data());
  handshake.slot_key = peer.memory.receive_slots.rkey();
  handshake.can_receive = peer.connection.can_receive;
  handshake.open = is_handshake_done(peer);
  handshake.one_adapter = node_adapters_.is_one();
  describe_rails(peer, &handshake);
  return handshake;
}

void PeerConnector::describe_rails(const Peer& peer, Handshake* handshake) const noexcept {
  if (peer.rails == nullptr) return;
  for (uint32_t i = 0; i < handshake->endpoint.rail_count; ++i) {
    const PeerRail& end = peer.rails->rails[i];
    if (!end.send.is_open()) continue;
    handshake->rails[i] = {.queue_pair = end.send.number(),
                           .sequence = end.first_sequence,
                           .fence_key = rails_[i].fence.rkey(),
                           .fence = reinterpret_cast<uintptr_t>(rails_[i].fence.data()),
                           .is_ready = end.is_ready};
  }
}

void PeerConnector::learn_rails(Peer& peer, const Handshake& handshake) noexcept {
  if (peer.rails == nullptr || peer.rails->is_known) return;
  peer.rails->is_known = true;
  uint32_t usable = 0;
  for (uint32_t i = 0; i < std::min(rails_.count(), handshake.endpoint.rail_count); ++i) {
    if (peer.rails->rails[i].is_ready && handshake.rails[i].is_ready) usable |= 1U << i;
  }
  const SpinGuard guard(peer.lock, !options_.single_threaded);
  peer.rails->usable.store(usable, std::memory_order_relaxed);
}

}  // namespace hydrant::ibv
