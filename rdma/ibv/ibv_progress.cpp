// What the completion queue says: sends that are over, messages that have come, queue pairs that have failed.
// One thread at a time; what can be sent because of it is sent by do_chores().
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant {

using ibv::Header;
using ibv::Peer;
using ibv::Received;
using ibv::SendRecord;
using ibv::status_of;

namespace {

SendRecord& record_of(const ibv_wc& completion) noexcept {
  return *reinterpret_cast<SendRecord*>(completion.wr_id - 1);
}

}  // namespace

// How many completions there were; less than 0: another thread is at it, or they cannot be read. *told:
// operations that are over.
int IbvTransport::drain(uint32_t* told) noexcept HYDRANT_NO_TSA {
  if (threaded_ && !drain_lock_.try_lock()) return -1;
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(queue_.get(), kBatch, completions);
  uint32_t over = 0;
  for (int i = 0; i < count; ++i) {
    if ((completions[i].wr_id & 1) != 0) {
      over += finish_send(completions[i]);
    } else {
      take_in(completions[i]);
    }
  }
  *told = over;
  if (count < 0) [[unlikely]] {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: the completion queue cannot be read", port_.name);
    lose_all("the completion queue cannot be read");
  }
  if (threaded_) drain_lock_.unlock();
  return count;
}

// ---- sends ----

// The usual: an operation that is all there is to tell of. Only whoever drains moves `over`: no lock.
inline uint32_t IbvTransport::finish_send(const ibv_wc& completion) noexcept {
  const SendRecord& record = record_of(completion);
  Peer& peer = *record.peer;
  if (completion.status != IBV_WC_SUCCESS || record.holds != SendRecord::Holds::kOperation ||
      record.position != peer.over.load(std::memory_order_relaxed)) [[unlikely]]
    return finish_sends(completion);
  Completion* const told = record.completion;
  peer.over.store(record.position + 1, std::memory_order_release);
  if (told != nullptr) told->done(*told, Status::kOk);
  return 1;
}

// A completion tells of its own entry and of all before it.
[[gnu::noinline]] uint32_t IbvTransport::finish_sends(const ibv_wc& completion) noexcept {
  SendRecord& last = record_of(completion);
  Peer& peer = *last.peer;
  const Status status = status_of(completion.status);
  const uint64_t end = last.position;
  Finished finished;
  uint32_t told = 0;
  for (bool is_last = false; !is_last; told += tell(finished)) {
    bool is_first_error = false;
    {
      const Guard guard(peer.lock, threaded_);
      uint64_t over = peer.over.load(std::memory_order_relaxed);
      for (; over < end && !finished.is_full(); ++over) {
        SendRecord& record = peer.records[over & record_mask_];
        if (record.holds != SendRecord::Holds::kNothing)
          retire(peer, record, peer.has_failed ? Status::kBroken : Status::kOk, &finished);
      }
      is_last = over == end && !finished.is_full();
      if (is_last) {
        retire(peer, last, status, &finished);
        ++over;
        if (status != Status::kOk) is_first_error = !std::exchange(peer.has_failed, true);
      }
      peer.over.store(over, std::memory_order_release);
    }
    if (is_first_error) [[unlikely]] {
      const char* text = ibv_wc_status_str(completion.status);
      if (peer.state.load(std::memory_order_acquire) != Peer::State::kLost)
        log_warning("%s port %u: what was sent to %s at %s has failed: %s (%#x)", port_.name,
                    port_.number, name_of(peer).text, text_of(peer.card.address).text, text,
                    completion.vendor_err);
      lose(peer, text);
    }
  }
  return told;
}

void IbvTransport::retire(Peer& peer, SendRecord& record, Status status,
                          Finished* finished) noexcept {
  switch (record.holds) {
    case SendRecord::Holds::kNothing: break;
    case SendRecord::Holds::kMessage: give_message_back(peer, record); break;
    case SendRecord::Holds::kOperation: finished->add(record.completion, status); break;
    case SendRecord::Holds::kPiece: finish_piece(*record.operation, status, finished); break;
  }
}

// ---- receives ----

void IbvTransport::take_in(const ibv_wc& completion) noexcept {
  auto& received = *reinterpret_cast<Received*>(completion.wr_id);
  received.peer = nullptr;
  const Header& header = ibv::header_in(received.data);
  Peer* peer = nullptr;
  if (completion.status == IBV_WC_SUCCESS && completion.byte_len >= ibv::kHeaderBytes) [[likely]] {
    peer = peer_of(header.from);
    // Who it is from is known from the queue pair; what the message says must agree.
    if (peer != nullptr && peer->queue->qp_num != completion.qp_num) peer = nullptr;
  }
  if (peer == nullptr || !makes_sense(header, completion.byte_len)) [[unlikely]] {
    peer = peer_of_queue(completion.qp_num);
    recycle(received);
    if (peer == nullptr || completion.status == IBV_WC_WR_FLUSH_ERR) return;
    const bool is_message = completion.status == IBV_WC_SUCCESS;
    log_error("%s port %u: what came from %s cannot be taken in: %s", port_.name, port_.number,
              name_of(*peer).text,
              is_message ? "it is no message" : ibv_wc_status_str(completion.status));
    lose(*peer,
         is_message ? "it has sent what is no message" : ibv_wc_status_str(completion.status));
    return;
  }
  if (peer->state.load(std::memory_order_relaxed) == Peer::State::kConnecting) [[unlikely]]
    now_open(*peer);
  hear_credits(*peer, header);
  received.peer = peer;
  if ((header.flags() & Header::kControl) != 0) {
    received.counter = ibv::kControlLane;
    recycle(received);
    if (credit_is_due(*peer)) add_chore(*peer);
    return;
  }
  const Lane lane = (header.flags() & Header::kReplyLane) != 0 ? Lane::kReply : Lane::kRequest;
  received.counter = static_cast<uint32_t>(lane);
  enqueue(*peer, lane, received);
}

bool IbvTransport::makes_sense(const Header& header, uint32_t bytes) const noexcept {
  constexpr uint32_t kKnown = Header::kReplyLane | Header::kControl | Header::kHasCell;
  if ((header.flags() & ~kKnown) != 0 || ibv::kHeaderBytes + header.head_bytes != bytes)
    return false;
  if ((header.flags() & Header::kHasCell) == 0)
    return header.payload_bytes == 0 && header.landing == 0;
  const uint32_t lane = header.flags() & Header::kReplyLane;
  return header.payload_bytes <= options_.cell_bytes && header.landing / options_.landings == lane;
}

void IbvTransport::hear_credits(Peer& peer, const Header& header) noexcept {
  for (uint32_t i = 0; i < ibv::kCounters; ++i) {
    const uint64_t known = peer.acknowledged[i].load(std::memory_order_relaxed);
    const auto more = static_cast<int16_t>(header.taken[i] - static_cast<uint16_t>(known));
    if (more > 0)
      peer.acknowledged[i].store(known + static_cast<uint64_t>(more), std::memory_order_release);
  }
}

// For errors only.
Peer* IbvTransport::peer_of_queue(uint32_t number) const noexcept {
  for (uint32_t rank = 0; rank < places_; ++rank) {
    Peer* peer = peer_of(rank);
    if (peer != nullptr && peer->queue->qp_num == number) return peer;
  }
  return nullptr;
}

// Posts again the buffers of the list `first`, and counts the credits: one of the owner's for each.
void IbvTransport::recycle(Received& first, uint32_t count, Peer* owner,
                           uint32_t counter) noexcept {
  ibv_recv_wr* bad = nullptr;
  // Afterwards they are the adapter's.
  const int error = ibv_post_srq_recv(receives_.get(), &first.work, &bad);
  if (error != 0) [[unlikely]] {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: receive buffers cannot be posted: %s; trying again", port_.name,
                errno_text(error));
    count -= keep_unposted(bad != nullptr ? bad : &first.work);
  }
  if (owner != nullptr && count != 0)
    owner->taken[counter].fetch_add(count, std::memory_order_release);
}

uint32_t IbvTransport::keep_unposted(ibv_recv_wr* first) noexcept {
  const Guard guard(unposted_lock_, threaded_);
  uint32_t count = 0;
  for (; first != nullptr; first = first->next, ++count) {
    auto& received = *reinterpret_cast<Received*>(first->wr_id);
    received.next = unposted_.load(std::memory_order_relaxed);
    unposted_.store(&received, std::memory_order_relaxed);
  }
  return count;
}

void IbvTransport::recycle_unposted() noexcept {
  Received* next = nullptr;
  {
    const Guard guard(unposted_lock_, threaded_);
    next = unposted_.exchange(nullptr, std::memory_order_relaxed);
  }
  while (Received* received = next) {
    next = received->next;
    Peer* const peer = received->peer;
    recycle(*received);
    if (peer != nullptr && credit_is_due(*peer)) add_chore(*peer);
  }
}

// ---- what waits for room or credits ----

void IbvTransport::add_chore(Peer& peer) noexcept {
  if (peer.has_chore.exchange(true, std::memory_order_acq_rel)) return;
  const Guard guard(chore_lock_, threaded_);
  peer.next_chore = chores_.load(std::memory_order_relaxed);
  chores_.store(&peer, std::memory_order_release);
}

// Answers how many operations are over because of it.
uint32_t IbvTransport::do_chores() noexcept {
  const uint32_t told = rail_count_ != 0 ? drain_rails() : 0;
  Peer* next = nullptr;
  {
    const Guard guard(chore_lock_, threaded_);
    next = chores_.exchange(nullptr, std::memory_order_acquire);
  }
  while (Peer* peer = next) {
    next = peer->next_chore;
    peer->has_chore.store(false, std::memory_order_release);
    if (!do_chore(*peer)) add_chore(*peer);
  }
  return told;
}

// True: nothing is left to be done.
bool IbvTransport::do_chore(Peer& peer) noexcept {
  if (peer.is_shut.load(std::memory_order_acquire)) lose(peer, peer.shut_reason);
  const Guard guard(peer.lock, threaded_);
  // What goes by rails is looked after until it is over, or has come back.
  const Peer::State state = peer.state.load(std::memory_order_acquire);
  if (state == Peer::State::kLost && !tell_of_the_last(peer)) return false;
  if (state != Peer::State::kOpen) return peer.rails == nullptr || peer.rails->shares == 0;
  bool is_done = true;
  for (const Lane lane : {Lane::kReply, Lane::kRequest}) {
    ibv::Stalled& stalled = peer.stalled[static_cast<uint32_t>(lane)];
    if (!stalled.is_there) continue;
    if (has_landing(peer, lane) && room_in_queue(peer) >= 2) {
      stalled.is_there = false;
      send_message(peer, lane, stalled.slot, stalled.word, stalled.head_bytes, &stalled.cell,
                   stalled.payload_bytes);
    } else {
      is_done = false;
    }
  }
  advance_operations(peer);
  if (peer.rails != nullptr) [[unlikely]] {
    advance_rails(peer);
    if (peer.rails->shares != 0) is_done = false;
  }
  if (peer.first_waiting != nullptr) is_done = false;
  if (credit_is_due(peer) && !send_control(peer)) is_done = false;
  return is_done;
}

}  // namespace hydrant
