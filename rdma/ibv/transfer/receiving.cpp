// Delivers messages, and posts buffers again whose receives failed or were refused. Tour "an Active Message":
// a message goes from the delivery queue to the receiver here.
#include "rdma/ibv/transfer/receiving.hpp"

#include "firehose/base/log.hpp"

#include <algorithm>

namespace hydrant::ibv {

Status Receiving::open(const Options& options, const Port& port, uint32_t receives) noexcept {
  port_ = &port;
  cell_bytes_ = options.cell_bytes;
  receive_slots_ = options.receive_slots;
  for (ReadyList& ready : ready_) ready.open(!options.single_threaded);
  return pool_.open(port, receives, !options.single_threaded);
}

[[gnu::noinline]] void Receiving::reject(ReceiveBuffer& buffer, const ibv_wc& completion) noexcept {
  // A queue pair whose own receive has failed takes no more buffers: each would fail at once.
  if (completion.status == IBV_WC_SUCCESS || pool_.queue() != nullptr) repost_receive(buffer);
  // A queue pair that ends flushes all its buffers, so no peer is searched for them.
  if (completion.status == IBV_WC_WR_FLUSH_ERR) return;
  Peer* const peer = peers_.find_queue_pair(completion.qp_num);
  if (peer == nullptr) return;
  const char* const failure =
      completion.status != IBV_WC_SUCCESS ? ibv_wc_status_str(completion.status) : nullptr;
  log_error("%s port %u: a message from %s is rejected: %s", port_->name, port_->number,
            name_of(*peer).text, failure != nullptr ? failure : "its header is not valid");
  disconnector_.disconnect(*peer, failure != nullptr ? failure : "it sent an invalid message");
}

void Receiving::post_unposted() noexcept {
  pool_.retry_unposted([this](ReceiveBuffer& buffer) {
    // A failed queue pair may refuse its own buffers for ever, and needs none.
    if (pool_.queue() == nullptr &&
        static_cast<const Peer*>(buffer.pair->qp_context)->state.is_disconnected())
      return;
    Peer* const peer = buffer.peer;  // a message that has come may replace it
    repost_receive(buffer);
    if (peer != nullptr && peer->credits.is_report_due()) deferred_.add(*peer);
  });
}

// Replies come first, because requests may wait for what they free. A quarter of the budget is kept for
// requests. A budget below 4 cannot be shared: it goes to requests in every fourth round.
uint32_t Receiving::deliver(Receiver& receiver, uint32_t budget, bool replies_only,
                            uint32_t round) noexcept {
  const uint32_t kept =
      replies_only ? 0 : (budget >= 4 ? budget / 4 : (round % 4 == 0 ? budget : 0));
  uint32_t delivered = deliver_lane(Lane::kReply, receiver, budget - kept);
  if (!replies_only && delivered < budget)
    delivered += deliver_lane(Lane::kRequest, receiver, budget - delivered);
  return delivered;
}

// Visits each ready queue once.
uint32_t Receiving::deliver_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept {
  ReadyList& ready = ready_[static_cast<uint32_t>(lane)];
  uint32_t done = 0;
  for (uint32_t queues = ready.size(); queues != 0 && done < budget; --queues) {
    DeliveryQueue* const queue = ready.claim();
    if (queue == nullptr) return done;
    done += deliver_from(*queue, lane, receiver, std::min(budget - done, kMaxInTurn));
  }
  return done;
}

// Delivers from a queue that this thread has claimed. Other threads, and polls inside a handler, skip it.
uint32_t Receiving::deliver_from(DeliveryQueue& queue, Lane lane, Receiver& receiver,
                                 uint32_t budget) noexcept {
  Peer& peer = *queue.peer();
  ReadyList& ready = ready_[static_cast<uint32_t>(lane)];
  const bool is_dead = peers_.is_dead(peer.rank);
  ReceiveBuffer* const first = queue.front();
  ReceiveBuffer* last = nullptr;
  uint32_t count = 0;
  uint32_t receive_slots = 0;
  do {
    ReceiveBuffer* const received = queue.front();
    if (last != nullptr) last->work.next = &received->work;
    last = received;
    const Header& header = header_in(received->data);
    Incoming message{.from = peer.rank,
                     .lane = lane,
                     .tag = header.tag(),
                     .head = received->data + kHeaderBytes,
                     .head_room = header.head_bytes};
    if ((header.flags() & Header::kHasCell) != 0) {
      message.payload =
          peer.memory.receive_slots.data() + size_t{header.receive_slot} * cell_bytes_;
      message.payload_room = header.payload_bytes;
      ++receive_slots;
    }
    if (!is_dead) receiver.deliver(message);
    ++count;
    queue.pop();
  } while ((queue.front() != nullptr && count < budget) || ready.end_turn(queue, count < budget));
  // Another thread may own the queue now. The delivered messages still belong to this thread.
  last->work.next = nullptr;
  repost_receive(*first, count, &peer, static_cast<uint32_t>(lane));
  // After add_taken(): see Credits::report().
  if (receive_slots != 0) peer.credits.add_freed_slots(lane, receive_slots);
  if (peer.credits.is_report_due()) deferred_.add(peer);
  return is_dead ? 0 : count;
}

}  // namespace hydrant::ibv
