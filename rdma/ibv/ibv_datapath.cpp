// Posting, and nothing else: no allocation, no system call of ours. Everything here runs under the lock of
// the peer that it posts to.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <cstring>
#include <new>

namespace hydrant {

using ibv::Header;
using ibv::Peer;
using ibv::SendRecord;

namespace {

ibv_sge piece_of(const std::byte* data, uint32_t bytes, uint32_t lkey) noexcept {
  return {reinterpret_cast<uintptr_t>(data), bytes, lkey};
}

uint32_t flags_of(Lane lane) noexcept { return lane == Lane::kReply ? Header::kReplyLane : 0; }

}  // namespace

// ---- room ----

Status IbvTransport::may_send(Peer& peer, Lane lane) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  const Peer::State state = peer.state.load(std::memory_order_acquire);
  if (state != Peer::State::kOpen) [[unlikely]]
    return state == Peer::State::kLost ? why_lost(peer) : Status::kNotReady;
  // Puts are there before what is committed later; and a lane keeps its order.
  if (peer.stalled[index].is_there) [[unlikely]]
    return Status::kNotReady;
  if (peer.held != 0) [[unlikely]]
    return hold_back(peer);
  const uint64_t under_way =
      peer.sent[index] - peer.acknowledged[index].load(std::memory_order_acquire);
  if (under_way >= options_.credits) [[unlikely]]
    return Status::kNotReady;
  if (room_in_queue(peer) < kKeptEntries || peer.free_slot_count == 0) [[unlikely]]
    return Status::kNotReady;
  return Status::kOk;
}

// Whom a put in shares keeps waiting has a turn before others follow it; see rails_for().
[[gnu::noinline]] Status IbvTransport::hold_back(Peer& peer) noexcept {
  if (peer.held >= Peer::kHeldByShare) {
    peer.rails->unstriped = ibv::PeerRails::kUnstriped;
    peer.rails->messages = peer.sent[0] + peer.sent[1];
  }
  return Status::kNotReady;
}

uint32_t IbvTransport::next_landing(const Peer& peer, Lane lane) const noexcept {
  const auto index = static_cast<uint32_t>(lane);
  return index * options_.landings +
         static_cast<uint32_t>(peer.landings_sent[index] % options_.landings);
}

bool IbvTransport::has_landing(Peer& peer, Lane lane) noexcept {
  return peer.acknowledged[static_cast<uint32_t>(lane)].load(std::memory_order_acquire) >=
         peer.landing_free_after[next_landing(peer, lane)];
}

Status IbvTransport::reserve(Rank rank, Lane lane, uint32_t bytes,
                             Outgoing* room) noexcept HYDRANT_NO_TSA {
  if (bytes > options_.eager_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a message of %u bytes; the most is %u", bytes,
                options_.eager_bytes);
  Peer* peer = peer_of(rank);
  if (peer == nullptr) [[unlikely]]
    return contact(rank);
  if (threaded_) peer->lock.lock();
  const Status status = may_send(*peer, lane);
  if (status != Status::kOk) [[unlikely]] {
    if (threaded_) peer->lock.unlock();
    return status;
  }
  const uint32_t slot = peer->free_slots[--peer->free_slot_count];
  room->head = slot_of(*peer, slot) + ibv::kHeaderBytes;
  room->state[0] = reinterpret_cast<uintptr_t>(peer);
  room->state[1] = static_cast<uint64_t>(lane) | uint64_t{slot} << 8;
  room->state[2] = bytes;
  return Status::kOk;
}

// A message that is handed over inline leaves its slot at once: none is taken.
Status IbvTransport::post(Rank rank, Lane lane, uint32_t tag, const void* head,
                          uint32_t bytes) noexcept HYDRANT_NO_TSA {
  Peer* const peer = peer_of(rank);
  if (peer == nullptr || uint64_t{bytes} + ibv::kHeaderBytes > options_.inline_bytes) [[unlikely]]
    return Transport::post(rank, lane, tag, head, bytes);
  const Guard guard(peer->lock, threaded_);
  if (const Status status = may_send(*peer, lane); status != Status::kOk) [[unlikely]]
    return status;
  const uint32_t slot = peer->free_slots[peer->free_slot_count - 1];
  std::byte* const message = slot_of(*peer, slot);
  if (bytes != 0) std::memcpy(message + ibv::kHeaderBytes, head, bytes);
  write_header(*peer, message, tag | flags_of(lane) << 24, bytes);
  ibv_send_wr& work = peer->message.work;
  peer->message.piece.addr = reinterpret_cast<uintptr_t>(message);
  peer->message.piece.length = ibv::kHeaderBytes + bytes;
  work.send_flags = IBV_SEND_INLINE;
  ++peer->sent[static_cast<uint32_t>(lane)];
  (void)next_record(*peer, &work, false);
  (void)hand_over(*peer, &work, 1);
  return Status::kOk;
}

void IbvTransport::commit(Outgoing& room, uint32_t tag) noexcept {
  finish_commit(room, tag, nullptr, 0);
}

void IbvTransport::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                    uint32_t bytes) noexcept {
  finish_commit(room, tag, &cell, bytes);
}

inline void IbvTransport::finish_commit(Outgoing& room, uint32_t tag, const Cell* cell,
                                        uint32_t bytes) noexcept HYDRANT_NO_TSA {
  Peer& peer = *reinterpret_cast<Peer*>(room.state[0]);
  const auto lane = static_cast<Lane>(room.state[1] & 0xff);
  const auto slot = static_cast<uint32_t>(room.state[1] >> 8);
  const auto head_bytes = static_cast<uint32_t>(room.state[2]);
  const uint32_t flags = flags_of(lane) | (cell != nullptr ? Header::kHasCell : 0);
  const uint32_t word = tag | flags << 24;
  bool stalls = false;
  if (peer.state.load(std::memory_order_acquire) == Peer::State::kLost) [[unlikely]] {
    give_slot_back(peer, slot);
    if (cell != nullptr) drop_cell(peer.rank, lane, *cell);
  } else if (cell != nullptr && !has_landing(peer, lane)) [[unlikely]] {
    stalls = true;
    peer.stalled[static_cast<uint32_t>(lane)] = {
        true, static_cast<uint16_t>(slot), word, head_bytes, *cell, bytes};
  } else {
    send_message(peer, lane, slot, word, head_bytes, cell, bytes);
  }
  if (threaded_) peer.lock.unlock();
  if (stalls) [[unlikely]] {
    counts_.stalls.fetch_add(1, std::memory_order_relaxed);
    add_chore(peer);
  }
}

// ---- posting ----

// Of the last `count` requests those from `bad` on were not taken; the queue pair takes nothing any more.
[[gnu::noinline]] void IbvTransport::take_back(Peer& peer, const ibv_send_wr* bad, uint32_t count,
                                               int error) noexcept {
  uint32_t refused = 0;
  for (const ibv_send_wr* request = bad; request != nullptr; request = request->next) ++refused;
  if (refused > count) refused = count;
  log_error("%s: what is sent to %s is not taken: %s", port_.name, name_of(peer).text,
            errno_text(error));
  for (uint32_t i = 0; i < refused; ++i) {
    SendRecord& record = peer.records[--peer.posted & record_mask_];
    if (record.holds == SendRecord::Holds::kMessage) give_message_back(peer, record);
  }
  if (peer.signalled > peer.posted) peer.signalled = peer.posted;
  peer.is_shut.store(true, std::memory_order_release);
  add_chore(peer);
}

void IbvTransport::give_message_back(Peer& peer, SendRecord& record) noexcept {
  give_slot_back(peer, record.slot);
  if (record.cell != SendRecord::kNone)
    drop_cell(peer.rank, static_cast<Lane>(record.lane), {nullptr, 0, record.cell});
}

inline void IbvTransport::write_header(Peer& peer, std::byte* message, uint32_t word,
                                       uint32_t head_bytes) noexcept {
  Header& header = *new (message) Header;
  header.word = word;
  header.from = peer.known_as;
  header.head_bytes = static_cast<uint16_t>(head_bytes);
  for (std::atomic<uint32_t>& untold : peer.untold_landings) {
    // Before the look at what is taken, where receivers count last: none is forgotten.
    if (untold.load(std::memory_order_relaxed) != 0) untold.exchange(0, std::memory_order_acq_rel);
  }
  for (uint32_t i = 0; i < ibv::kCounters; ++i) {
    const uint64_t taken = peer.taken[i].load(std::memory_order_acquire);
    header.taken[i] = static_cast<uint16_t>(taken);
    peer.told[i].store(taken, std::memory_order_relaxed);
  }
}

void IbvTransport::send_message(Peer& peer, Lane lane, uint32_t slot, uint32_t word,
                                uint32_t head_bytes, const Cell* cell,
                                uint32_t payload_bytes) noexcept {
  const uint32_t bytes = prepare_message(peer, slot, word, head_bytes);
  ibv_send_wr* first = &peer.message.work;
  uint32_t count = 1;
  ++peer.sent[static_cast<uint32_t>(lane)];
  if (cell != nullptr && prepare_cell(peer, lane, slot, *cell, payload_bytes)) [[unlikely]] {
    first = &peer.cell.work;
    count = 2;
  }
  SendRecord& record = next_record(peer, &peer.message.work, cell != nullptr);
  if (cell == nullptr && bytes <= options_.inline_bytes) {
    // It leaves its slot at once.
    give_slot_back(peer, slot);
  } else {
    hold_message(record, lane, slot, cell);
  }
  (void)hand_over(peer, first, count);
}

inline void IbvTransport::hold_message(SendRecord& record, Lane lane, uint32_t slot,
                                       const Cell* cell) noexcept {
  record.holds = SendRecord::Holds::kMessage;
  record.slot = static_cast<uint16_t>(slot);
  record.lane = static_cast<uint8_t>(lane);
  record.cell = cell != nullptr ? static_cast<uint16_t>(cell->index) : SendRecord::kNone;
}

// The message in `slot` with its header, in peer.message; how long it is.
inline uint32_t IbvTransport::prepare_message(Peer& peer, uint32_t slot, uint32_t word,
                                              uint32_t head_bytes) noexcept {
  write_header(peer, slot_of(peer, slot), word, head_bytes);
  const uint32_t bytes = ibv::kHeaderBytes + head_bytes;
  peer.message.piece.addr = reinterpret_cast<uintptr_t>(slot_of(peer, slot));
  peer.message.piece.length = bytes;
  peer.message.work.send_flags = bytes <= options_.inline_bytes ? IBV_SEND_INLINE : 0;
  return bytes;
}

// The payload's way into the next landing cell, in peer.cell. False: there is nothing to write.
[[gnu::noinline]] bool IbvTransport::prepare_cell(Peer& peer, Lane lane, uint32_t slot,
                                                  const Cell& cell,
                                                  uint32_t payload_bytes) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  const uint32_t landing = next_landing(peer, lane);
  Header header;
  std::memcpy(&header, slot_of(peer, slot), sizeof header);
  header.payload_bytes = payload_bytes;
  header.landing = static_cast<uint16_t>(landing);
  std::memcpy(slot_of(peer, slot), &header, sizeof header);
  peer.landing_free_after[landing] = peer.sent[index];
  ++peer.landings_sent[index];
  if (payload_bytes == 0) return false;
  peer.cell.piece = piece_of(cell.data, payload_bytes, cells_[index].memory.lkey());
  ibv_send_wr& write = peer.cell.work;
  write.send_flags = 0;
  write.wr.rdma.remote_addr = peer.their_landings + uint64_t{landing} * options_.cell_bytes;
  write.wr.rdma.rkey = peer.their_landing_key;
  (void)next_record(peer, &write, false);
  return true;
}

// ---- credits ----

uint64_t IbvTransport::untold(const Peer& peer, uint32_t counter) noexcept {
  return peer.taken[counter].load(std::memory_order_relaxed) -
         peer.told[counter].load(std::memory_order_relaxed);
}

bool IbvTransport::credit_is_due(const Peer& peer) const noexcept {
  if (untold(peer, ibv::kControlLane) >= kControlCredits / 2) return true;
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    if (untold(peer, lane) >= options_.credits / 2 ||
        peer.untold_landings[lane].load(std::memory_order_relaxed) >= options_.landings / 2)
      return true;
  }
  return false;
}

// Nothing but a header. False: there is no room for it now.
bool IbvTransport::send_control(Peer& peer) noexcept {
  const uint64_t under_way = peer.sent[ibv::kControlLane] -
                             peer.acknowledged[ibv::kControlLane].load(std::memory_order_acquire);
  // The last ones are for answers to control messages: of two that have much to tell, none waits for ever.
  const bool is_answer = untold(peer, ibv::kControlLane) >= kControlCredits / 2;
  const uint64_t most = is_answer ? kControlCredits : kControlCredits - 2;
  if (under_way >= most || room_in_queue(peer) == 0 || peer.free_slot_count == 0) return false;
  const uint32_t slot = peer.free_slots[--peer.free_slot_count];
  (void)prepare_message(peer, slot, Header::kControl << 24, 0);
  SendRecord& record = next_record(peer, &peer.message.work, false);
  hold_message(record, Lane::kRequest, slot, nullptr);
  ++peer.sent[ibv::kControlLane];
  counts_.control.fetch_add(1, std::memory_order_relaxed);
  (void)hand_over(peer, &peer.message.work, 1);
  return true;
}

}  // namespace hydrant
