// Receives messages: checks those that arrive, keeps them in a queue per peer and lane, delivers them, and
// posts their buffers again. A thread that takes replies only, or is inside a handler, delays no other thread
// and breaks no lane's order.
//
// Invariant: a buffer is posted to the adapter, in a delivery queue, in delivery, or unposted. It is posted
// again after its message was delivered; then the peer's credit for it is counted.
//
// Threads: accept() by the thread that reads the completion queue; the others by any.
#pragma once

#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/ready_list.hpp"
#include "rdma/ibv/queue/receive_pool.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/disconnector.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/transport/transport.hpp"

#include <array>
#include <cstdint>

namespace hydrant::ibv {

class Receiving {
 public:
  Receiving(PeerTable& peers, DeferredWork& deferred, Disconnector& disconnector,
            Counters& counters) noexcept
      : peers_(peers), deferred_(deferred), disconnector_(disconnector), counters_(counters) {}
  // `receives`: buffers of the shared receive queue, if the adapter has one. Errors: kResource.
  Status open(const Options& options, const Port& port, uint32_t receives) noexcept;
  // The queue pairs that receive must be destroyed before.
  void close() noexcept { pool_.close(); }
  // queue() and capacity() are those of ReceivePool.
  ibv_srq* queue() const noexcept { return pool_.queue(); }
  uint32_t capacity() const noexcept { return pool_.capacity(); }

  // Posts the empty buffers of a new peer. Those that the adapter refuses are posted later: see
  // Credits::are_posted().
  void add_buffers(Peer& peer, uint32_t count) noexcept {
    for (uint32_t i = 0; i < count; ++i) {
      ReceiveBuffer& buffer = peer.memory.received[i];
      buffer.pair = peer.send.pair();
      buffer.peer = &peer;
      buffer.counter = Credits::kFirst;
      repost_receive(buffer);
    }
  }
  // A receive has completed.
  void accept(const ibv_wc& completion) noexcept;

  bool has_undelivered() const noexcept { return ready_[0].size() != 0 || ready_[1].size() != 0; }
  // As Transport::poll(). `round` numbers the calls.
  uint32_t deliver(Receiver& receiver, uint32_t budget, bool replies_only, uint32_t round) noexcept;
  // post_unposted() posts the buffers again that the adapter has refused.
  bool has_unposted() const noexcept { return pool_.has_unposted(); }
  void post_unposted() noexcept;

 private:
  // Messages of one peer in a row, so that one peer cannot use up the budget of a poll.
  static constexpr uint32_t kMaxInTurn = 16;

  bool is_valid(const Header& header, uint32_t bytes) const noexcept;
  void reject(ReceiveBuffer& buffer, const ibv_wc& completion) noexcept;
  uint32_t deliver_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t deliver_from(DeliveryQueue& queue, Lane lane, Receiver& receiver,
                        uint32_t budget) noexcept;
  void repost_receive(ReceiveBuffer& first, uint32_t count, Peer* sender,
                      uint32_t counter) noexcept {
    const uint32_t posted = pool_.post(first, count);
    if (sender != nullptr && posted != 0) sender->credits.add_taken(counter, posted);
  }
  void repost_receive(ReceiveBuffer& buffer) noexcept {
    buffer.work.next = nullptr;
    repost_receive(buffer, 1, buffer.peer, buffer.counter);
  }

  PeerTable& peers_;
  DeferredWork& deferred_;
  Disconnector& disconnector_;
  Counters& counters_;
  const Port* port_ = nullptr;
  uint32_t cell_bytes_ = 0;
  uint32_t receive_slots_ = 0;
  ReceivePool pool_;
  std::array<ReadyList, kLaneCount> ready_;
};

// The usual receive: a valid message of a known peer.
inline void Receiving::accept(const ibv_wc& completion) noexcept {
  auto& buffer = *reinterpret_cast<ReceiveBuffer*>(completion.wr_id);
  buffer.peer = nullptr;
  const Header& header = header_in(buffer.data);
  Peer* peer = nullptr;
  if (completion.status == IBV_WC_SUCCESS && completion.byte_len >= kHeaderBytes) [[likely]] {
    peer = peers_.find(header.from);
    // The queue pair shows the sender; the header must agree.
    if (peer != nullptr && peer->send.number() != completion.qp_num) peer = nullptr;
  }
  if (peer == nullptr || !is_valid(header, completion.byte_len)) [[unlikely]] {
    reject(buffer, completion);
    return;
  }
  // The peer sends, so it can receive.
  if (peer->state.is_connecting() && peer->state.open()) [[unlikely]]
    counters_.connected.add();
  peer->credits.apply(header.taken);
  buffer.peer = peer;
  if ((header.flags() & Header::kControl) != 0) {
    buffer.counter = Credits::kControl;
    repost_receive(buffer);
    if (peer->credits.is_report_due()) deferred_.add(*peer);
    return;
  }
  const Lane lane = (header.flags() & Header::kReplyLane) != 0 ? Lane::kReply : Lane::kRequest;
  buffer.counter = static_cast<uint32_t>(lane);
  ready_[buffer.counter].add(peer->delivery_queues[buffer.counter], buffer);
}

inline bool Receiving::is_valid(const Header& header, uint32_t bytes) const noexcept {
  constexpr uint32_t kKnown = Header::kReplyLane | Header::kControl | Header::kHasCell;
  if ((header.flags() & ~kKnown) != 0 || kHeaderBytes + header.head_bytes != bytes) return false;
  if ((header.flags() & Header::kHasCell) == 0)
    return header.payload_bytes == 0 && header.receive_slot == 0;
  const uint32_t lane = header.flags() & Header::kReplyLane;
  return header.payload_bytes <= cell_bytes_ && header.receive_slot / receive_slots_ == lane;
}

}  // namespace hydrant::ibv
