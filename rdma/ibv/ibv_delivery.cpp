// From the completion queue to the receiver: messages wait in a queue per peer and lane, so that a thread
// that takes replies only, or is inside a handler, keeps nobody's order and nobody's reply from its way.
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>

namespace hydrant {

using ibv::Arrivals;
using ibv::Header;
using ibv::Peer;
using ibv::Received;

uint32_t IbvTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (any_buried_.load(std::memory_order_relaxed)) [[unlikely]]
    bury_waiting();
  uint32_t done = 0;
  (void)drain(&done);
  if (connecting_count_.load(std::memory_order_relaxed) != 0 || polls % kPollsBetweenGreetings == 0)
      [[unlikely]]
    keep_house(polls);
  if (unposted_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    recycle_unposted();
  if (any_arrival()) done += deliver(receiver, budget, replies_only, polls);
  if (chores_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    done += do_chores();
  return done;
}

[[gnu::noinline]] void IbvTransport::keep_house(uint32_t polls) noexcept {
  static_assert(kPollsBetweenProbes % kPollsBetweenGreetings == 0 &&
                kPollsBetweenEvents % kPollsBetweenProbes == 0);
  (void)shake_hands();
  if (polls % kPollsBetweenProbes == 0) probe();
  if (polls % kPollsBetweenEvents == 0) read_events();
}

uint32_t IbvTransport::deliver(Receiver& receiver, uint32_t budget, bool replies_only,
                               uint32_t polls) noexcept {
  // Replies first, as they free what requests wait for; but requests keep a quarter of the budget. One too
  // small to be shared goes to the requests every fourth time.
  const uint32_t kept =
      replies_only ? 0 : (budget >= 4 ? budget / 4 : (polls % 4 == 0 ? budget : 0));
  uint32_t delivered = deliver_lane(Lane::kReply, receiver, budget - kept);
  if (!replies_only && delivered < budget)
    delivered += deliver_lane(Lane::kRequest, receiver, budget - delivered);
  return delivered;
}

void IbvTransport::enqueue(Peer& peer, Lane lane, Received& received) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  Arrivals& arrivals = peer.arrivals[index];
  received.next = nullptr;
  const Guard guard(ready_lock_, threaded_);
  (arrivals.first == nullptr ? arrivals.first : arrivals.last->next) = &received;
  arrivals.last = &received;
  if (arrivals.is_claimed) return;
  arrivals.is_claimed = true;
  make_ready(peer, lane);
}

// Under the ready lock.
void IbvTransport::make_ready(Peer& peer, Lane lane) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  peer.arrivals[index].next_ready = nullptr;
  (first_ready_[index] == nullptr ? first_ready_[index]
                                  : last_ready_[index]->arrivals[index].next_ready) = &peer;
  last_ready_[index] = &peer;
  ready_[index].fetch_add(1, std::memory_order_relaxed);
}

// Goes round those who have something, each once.
uint32_t IbvTransport::deliver_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  uint32_t done = 0;
  for (uint32_t peers = ready_[index].load(std::memory_order_relaxed); peers != 0 && done < budget;
       --peers) {
    Peer* peer = nullptr;
    {
      const Guard guard(ready_lock_, threaded_);
      peer = first_ready_[index];
      if (peer == nullptr) return done;
      first_ready_[index] = peer->arrivals[index].next_ready;
      ready_[index].fetch_sub(1, std::memory_order_relaxed);
      take_arrivals(peer->arrivals[index]);
    }
    done += deliver_from(*peer, lane, receiver, std::min(budget - done, kVisitMost));
  }
  return done;
}

// By whoever has claimed the lane, under the ready lock. Who has taken all may take more.
bool IbvTransport::take_arrivals(Arrivals& arrivals) noexcept {
  if (arrivals.taken == nullptr) {
    arrivals.taken = arrivals.first;
    arrivals.first = arrivals.last = nullptr;
  }
  return arrivals.taken != nullptr;
}

// By the one thread that has claimed the lane of this peer; others, and this one's own polls inside a
// handler, pass it by.
uint32_t IbvTransport::deliver_from(Peer& peer, Lane lane, Receiver& receiver,
                                    uint32_t budget) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  Arrivals& arrivals = peer.arrivals[index];
  const bool is_buried = buried_[peer.rank].load(std::memory_order_acquire);
  Received* const first = arrivals.taken;  // who is in line has something
  Received* last = nullptr;
  uint32_t count = 0;
  uint32_t landings = 0;
  for (bool goes_on = true; goes_on;) {
    Received* const received = arrivals.taken;
    if (last != nullptr) last->work.next = &received->work;
    last = received;
    const Header& header = ibv::header_in(received->data);
    Incoming message{.from = peer.rank,
                     .lane = lane,
                     .tag = header.tag(),
                     .head = received->data + ibv::kHeaderBytes,
                     .head_room = header.head_bytes};
    if ((header.flags() & Header::kHasCell) != 0) {
      message.payload = peer.landings.data() + size_t{header.landing} * options_.cell_bytes;
      message.payload_room = header.payload_bytes;
      ++landings;
    }
    if (!is_buried) receiver.deliver(message);
    ++count;
    arrivals.taken = received->next;
    if (arrivals.taken != nullptr && count < budget) continue;
    // Whose turn is over gives the lane up, or stands in line again.
    const Guard guard(ready_lock_, threaded_);
    const bool has_more = take_arrivals(arrivals);
    goes_on = has_more && count < budget;
    if (!has_more) {
      arrivals.is_claimed = false;
    } else if (!goes_on) {
      make_ready(peer, lane);
    }
  }
  // The lane may be another's now. What has been delivered from it before is done with all the same.
  last->work.next = nullptr;
  recycle(*first, count, &peer, index);
  // After what is taken is counted: see write_header().
  if (landings != 0) peer.untold_landings[index].fetch_add(landings, std::memory_order_release);
  if (credit_is_due(peer)) add_chore(peer);
  return is_buried ? 0 : count;
}

bool IbvTransport::any_arrival() const noexcept {
  return ready_[0].load(std::memory_order_relaxed) != 0 ||
         ready_[1].load(std::memory_order_relaxed) != 0;
}

}  // namespace hydrant
