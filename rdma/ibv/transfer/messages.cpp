// Sends messages from slots, with or without a cell, and stalled messages; reports credits. Tour "an Active
// Message": a request is built in a slot and posted here, if Messages::post() does not copy it.
#include "rdma/ibv/transfer/messages.hpp"

#include <utility>

namespace hydrant::ibv {

void Messages::open(const Options& options) noexcept {
  threaded_ = !options.single_threaded;
  inline_bytes_ = options.inline_bytes;
  cell_bytes_ = options.cell_bytes;
}

[[gnu::noinline]] Status Messages::report_not_open(const Peer& peer) noexcept {
  return peer.state.is_disconnected() ? disconnect_error(peer) : Status::kNotReady;
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
  if (cell == nullptr && bytes <= inline_bytes_) {
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
  request.work.send_flags = bytes <= inline_bytes_ ? IBV_SEND_INLINE : 0;
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
    if (!stalled.is_there) continue;
    if (peer.credits.has_slot(lane) && peer.send.room() >= 2) {
      stalled.is_there = false;
      send(peer, lane, stalled.slot, stalled.word, stalled.head_bytes, &stalled.cell,
           stalled.payload_bytes);
    } else {
      is_done = false;
    }
  }
  if (peer.credits.is_report_due() && !send_report(peer)) is_done = false;
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
