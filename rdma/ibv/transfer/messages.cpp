// Sends messages from slots, with or without a cell, and stalled messages; reports credits. Tour "an Active
// Message", over verbs.
#include "rdma/ibv/transfer/messages.hpp"

#include "firehose/base/planted_defect.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace hydrant::ibv {

void Messages::open(FirstContact& contact) noexcept {
  contact_ = &contact;
  threaded_ = !options_.single_threaded;
  eager_bytes_ = options_.eager_bytes;
  adapter_inline_bytes_ = options_.inline_bytes;
  cell_bytes_ = options_.cell_bytes;
}

// Delays a message behind earlier puts. If a striped put is among them, notes that further puts must not be
// striped until the message is sent; see Striping::usable_rails().
[[gnu::noinline]] Status Messages::delay(Peer& peer) noexcept {
  if (peer.pending.has_put_stripes()) {
    peer.rails->unstriped = PeerRails::kUnstriped;
    peer.rails->messages = peer.credits.messages_sent();
  }
  return Status::kNotReady;
}

// ---- the fast paths ----

inline Status Messages::check_ready(Peer& peer, Lane lane) noexcept {
  if (!peer.state.is_open()) [[unlikely]]
    return report_not_ready(peer);
  if (peer.stalled[static_cast<uint32_t>(lane)].is_there) [[unlikely]]
    return Status::kNotReady;
  if (peer.pending.delays_messages() && !has_defect(Defect::kEarlyMessage)) [[unlikely]]
    return delay(peer);
  if (!peer.credits.has_credit(lane) && !has_defect(Defect::kTooManySent)) [[unlikely]]
    return Status::kNotReady;
  if (peer.send.room() < kEntriesForMessages || peer.slots.is_empty()) [[unlikely]]
    return Status::kNotReady;
  return Status::kOk;
}

inline void Messages::write_header(Peer& peer, std::byte* message, uint32_t word,
                                   uint32_t head_bytes) noexcept {
  Header& header = *new (message) Header;
  header.word = word;
  header.from = peer.index_at_peer;
  header.head_bytes = static_cast<uint16_t>(head_bytes);
  peer.credits.report(header.taken);
}

Status Messages::reserve(Rank rank, Lane lane, uint32_t bytes,
                         Outgoing* room) noexcept HYDRANT_NO_TSA {
  if (bytes > eager_bytes_) [[unlikely]]
    return fail(Status::kBadArg, "a message of %u bytes; the most is %u", bytes, eager_bytes_);
  Peer* const found = peers_.find(rank);
  if (found == nullptr) [[unlikely]]
    return contact_->start_connection(rank);
  Peer& peer = *found;
  if (threaded_) peer.lock.lock();
  const Status status = check_ready(peer, lane);
  if (status != Status::kOk) [[unlikely]] {
    if (threaded_) peer.lock.unlock();
    return status;
  }
  const uint32_t slot = peer.slots.take();
  room->head = peer.slots.at(slot) + kHeaderBytes;
  room->state[0] = reinterpret_cast<uintptr_t>(&peer);
  room->state[1] = static_cast<uint64_t>(lane) | uint64_t{slot} << 8;
  room->state[2] = bytes;
  return Status::kOk;
}

// The adapter copies the message while it is posted, so it is built in the next free slot without taking
// that.
Status Messages::post(Rank rank, Lane lane, uint32_t tag, const void* head,
                      uint32_t bytes) noexcept HYDRANT_NO_TSA {
  Peer* const found = peers_.find(rank);
  if (found == nullptr || !is_copied(bytes)) [[unlikely]]
    return MessageChannel::post(rank, lane, tag, head, bytes);
  Peer& peer = *found;
  const SpinGuard guard(peer.lock, threaded_);
  if (const Status status = check_ready(peer, lane); status != Status::kOk) [[unlikely]]
    return status;
  std::byte* const message = peer.slots.at(peer.slots.next());
  if (bytes != 0) std::memcpy(message + kHeaderBytes, head, bytes);
  write_header(peer, message, tag | flags_of(lane) << 24, bytes);
  SendRequest& request = peer.requests.message;
  request.piece.addr = reinterpret_cast<uintptr_t>(message);
  request.piece.length = kHeaderBytes + bytes;
  request.work.send_flags = IBV_SEND_INLINE;
  peer.credits.count_sent(lane);
  (void)peer.send.add(request.work, false);
  (void)poster_.post(peer, &request.work, 1);
  return Status::kOk;
}

inline void Messages::finish(Outgoing& room, uint32_t tag, const Cell* cell,
                             uint32_t cell_bytes) noexcept HYDRANT_NO_TSA {
  Peer& peer = *reinterpret_cast<Peer*>(room.state[0]);
  const auto lane = static_cast<Lane>(room.state[1] & 0xff);
  const auto slot = static_cast<uint32_t>(room.state[1] >> 8);
  const auto head_bytes = static_cast<uint32_t>(room.state[2]);
  const uint32_t flags = flags_of(lane) | (cell != nullptr ? Header::kHasCell : 0);
  const uint32_t word = tag | flags << 24;
  bool stalls = false;
  if (peer.state.is_disconnected()) [[unlikely]] {
    peer.slots.release(slot);
    if (cell != nullptr) cells_[static_cast<uint32_t>(lane)].release(cell->index);
  } else if (cell != nullptr && !peer.credits.has_slot(lane) && !has_defect(Defect::kReusedSlot))
      [[unlikely]] {
    stalls = true;
    peer.stalled[static_cast<uint32_t>(lane)] = {
        true, static_cast<uint16_t>(slot), word, head_bytes, *cell, cell_bytes};
  } else {
    send(peer, lane, slot, word, head_bytes, cell, cell_bytes);
  }
  if (threaded_) peer.lock.unlock();
  if (stalls) [[unlikely]] {
    counters_.stalls.add();
    deferred_.add(peer);
  }
}

void Messages::commit(Outgoing& room, uint32_t tag) noexcept { finish(room, tag, nullptr, 0); }

void Messages::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                uint32_t bytes) noexcept {
  finish(room, tag, &cell, bytes);
}

Status Messages::take_cell(Rank, Lane lane, uint32_t bytes, Cell* cell) noexcept {
  if (bytes > cell_bytes_) [[unlikely]]
    return fail(Status::kBadArg, "a cell of %u bytes; the largest has %u", bytes, cell_bytes_);
  return cells_[static_cast<uint32_t>(lane)].take(cell);
}

void Messages::drop_cell(Rank, Lane lane, const Cell& cell) noexcept {
  cells_[static_cast<uint32_t>(lane)].release(cell.index);
}

void Messages::send(Peer& peer, Lane lane, uint32_t slot, uint32_t word, uint32_t head_bytes,
                    const Cell* cell, uint32_t payload_bytes) noexcept {
  const uint32_t bytes = prepare(peer, slot, word, head_bytes);
  ibv_send_wr* first = &peer.requests.message.work;
  uint32_t count = 1;
  peer.credits.count_sent(lane);
  if (cell != nullptr && prepare_cell(peer, lane, slot, *cell, payload_bytes)) [[unlikely]] {
    first = &peer.requests.cell.work;
    count = 2;
  }
  SendRecord& record = peer.send.add(peer.requests.message.work, cell != nullptr);
  if (cell == nullptr && (bytes <= adapter_inline_bytes_ || has_defect(Defect::kReusedBuffer))) {
    // The adapter copies the message while it is posted, so the slot is free already.
    peer.slots.release(slot);
  } else {
    hold(record, lane, slot, cell);
  }
  (void)poster_.post(peer, first, count);
}

// Writes the header of the message in `slot`, and points the prebuilt request at it. Returns its bytes.
inline uint32_t Messages::prepare(Peer& peer, uint32_t slot, uint32_t word,
                                  uint32_t head_bytes) noexcept {
  write_header(peer, peer.slots.at(slot), word, head_bytes);
  const uint32_t bytes = kHeaderBytes + head_bytes;
  SendRequest& request = peer.requests.message;
  request.piece.addr = reinterpret_cast<uintptr_t>(peer.slots.at(slot));
  request.piece.length = bytes;
  request.work.send_flags = bytes <= adapter_inline_bytes_ ? IBV_SEND_INLINE : 0;
  return bytes;
}

// Adds the write of the payload into the next receive slot. False: the payload is empty.
[[gnu::noinline]] bool Messages::prepare_cell(Peer& peer, Lane lane, uint32_t slot,
                                              const Cell& cell, uint32_t payload_bytes) noexcept {
  const uint32_t receive_slot = peer.credits.take_slot(lane);
  Header header;
  std::memcpy(&header, peer.slots.at(slot), sizeof header);
  header.payload_bytes = payload_bytes;
  header.receive_slot = static_cast<uint16_t>(receive_slot);
  std::memcpy(peer.slots.at(slot), &header, sizeof header);
  if (payload_bytes == 0) return false;
  SendRequest& request = peer.requests.cell;
  request.piece = {reinterpret_cast<uintptr_t>(cell.data), payload_bytes,
                   cells_[static_cast<uint32_t>(lane)].lkey()};
  request.work.send_flags = 0;
  request.work.wr.rdma.remote_addr = peer.memory.peer_slots + uint64_t{receive_slot} * cell_bytes_;
  request.work.wr.rdma.rkey = peer.memory.peer_slot_key;
  (void)peer.send.add(request.work, false);
  return true;
}

bool Messages::advance(Peer& peer) noexcept {
  bool is_done = true;
  for (const Lane lane : {Lane::kReply, Lane::kRequest}) {
    StalledMessage& stalled = peer.stalled[static_cast<uint32_t>(lane)];
    if (!stalled.is_there || has_defect(Defect::kForgottenCell)) continue;
    if (peer.credits.has_slot(lane) && peer.send.room() >= 2) {
      stalled.is_there = false;
      send(peer, lane, stalled.slot, stalled.word, stalled.head_bytes, &stalled.cell,
           stalled.payload_bytes);
    } else {
      is_done = false;
    }
  }
  if (peer.credits.is_report_due() && !has_defect(Defect::kNoReport) && !send_report(peer))
    is_done = false;
  return is_done;
}

// Sends a control message, which is a header alone. False: there is no room now.
bool Messages::send_report(Peer& peer) noexcept {
  if (!peer.credits.has_control_credit() || peer.send.room() == 0 || peer.slots.is_empty())
    return false;
  const uint32_t slot = peer.slots.take();
  (void)prepare(peer, slot, Header::kControl << 24, 0);
  hold(peer.send.add(peer.requests.message.work, false), Lane::kRequest, slot, nullptr);
  peer.credits.count_sent(Credits::kControl);
  counters_.control.add();
  (void)poster_.post(peer, &peer.requests.message.work, 1);
  return true;
}

void Messages::abandon(Peer& peer) noexcept {
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    const auto index = static_cast<uint32_t>(lane);
    StalledMessage& stalled = peer.stalled[index];
    if (!std::exchange(stalled.is_there, false)) continue;
    cells_[index].release(stalled.cell.index);
    peer.slots.release(stalled.slot);
  }
}

}  // namespace hydrant::ibv
