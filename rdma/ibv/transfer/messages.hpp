// Sends messages: a message with its payload inline is one SEND. A payload in a cell is an RDMA write into a
// receive slot of the peer, and a SEND behind it on the same queue pair.
//
// Invariant: a message leaves only with a credit for a receive buffer, so the peer is never short of buffers.
// A lane keeps its order: while a message of it is stalled, no later one is reserved. Messages do not
// overtake puts that were started before them (PendingOperations::delays_messages()).
//
// Threads: any. reserve() takes the lock of the peer, commit() releases it. Comments say which methods need
// it.
#pragma once

#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/poster.hpp"

#include <cstdint>
#include <cstring>
#include <new>

namespace hydrant::ibv {

class Messages {
 public:
  Messages(const Poster& poster, DeferredWork& deferred, LaneCells& cells,
           Counters& counters) noexcept
      : poster_(poster), deferred_(deferred), cells_(cells), counters_(counters) {}
  void open(const Options& options) noexcept;

  // Errors: kNotReady: no credit, no room in the queue, or an earlier put or message must go first; kBroken.
  Status reserve(Peer& peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept;
  void commit(Outgoing& room, uint32_t tag, const Cell* cell, uint32_t cell_bytes) noexcept;
  // Whether post() takes a message: the adapter copies it at once, so it needs no slot.
  bool is_copied(uint32_t bytes) const noexcept {
    return uint64_t{bytes} + kHeaderBytes <= inline_bytes_;
  }
  Status post(Peer& peer, Lane lane, uint32_t tag, const void* head, uint32_t bytes) noexcept;

  // ---- under the lock of the peer ----
  // Sends stalled messages that have a receive slot now, and a report of credits if it is due. True: nothing
  // is left.
  bool advance(Peer& peer) noexcept;
  // Drops the stalled messages of a disconnected peer.
  void abandon(Peer& peer) noexcept;

 private:
  static uint32_t flags_of(Lane lane) noexcept {
    return lane == Lane::kReply ? Header::kReplyLane : 0;
  }
  static void hold(SendRecord& record, Lane lane, uint32_t slot, const Cell* cell) noexcept {
    record.holds = SendRecord::Holds::kMessage;
    record.slot = static_cast<uint16_t>(slot);
    record.lane = static_cast<uint8_t>(lane);
    record.cell = cell != nullptr ? static_cast<uint16_t>(cell->index) : SendRecord::kNone;
  }
  Status check_ready(Peer& peer, Lane lane) noexcept;
  Status delay(Peer& peer) noexcept;
  Status report_not_open(const Peer& peer) noexcept;
  void write_header(Peer& peer, std::byte* message, uint32_t word, uint32_t head_bytes) noexcept;
  uint32_t prepare(Peer& peer, uint32_t slot, uint32_t word, uint32_t head_bytes) noexcept;
  bool prepare_cell(Peer& peer, Lane lane, uint32_t slot, const Cell& cell,
                    uint32_t payload_bytes) noexcept;
  void send(Peer& peer, Lane lane, uint32_t slot, uint32_t word, uint32_t head_bytes,
            const Cell* cell, uint32_t payload_bytes) noexcept;
  bool send_report(Peer& peer) noexcept;

  Poster poster_;
  DeferredWork& deferred_;
  LaneCells& cells_;
  Counters& counters_;
  bool threaded_ = true;
  uint32_t inline_bytes_ = 0;
  uint32_t cell_bytes_ = 0;
};

// ---- the fast paths, inline in the transport's calls ----

inline Status Messages::check_ready(Peer& peer, Lane lane) noexcept {
  if (!peer.state.is_open()) [[unlikely]]
    return report_not_open(peer);
  if (peer.stalled[static_cast<uint32_t>(lane)].is_there) [[unlikely]]
    return Status::kNotReady;
  if (peer.pending.delays_messages()) [[unlikely]]
    return delay(peer);
  if (!peer.credits.has_credit(lane)) [[unlikely]]
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

[[gnu::always_inline]] inline Status Messages::reserve(Peer& peer, Lane lane, uint32_t bytes,
                                                       Outgoing* room) noexcept HYDRANT_NO_TSA {
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
[[gnu::always_inline]] inline Status Messages::post(Peer& peer, Lane lane, uint32_t tag,
                                                    const void* head,
                                                    uint32_t bytes) noexcept HYDRANT_NO_TSA {
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

inline void Messages::commit(Outgoing& room, uint32_t tag, const Cell* cell,
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
  } else if (cell != nullptr && !peer.credits.has_slot(lane)) [[unlikely]] {
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

}  // namespace hydrant::ibv
