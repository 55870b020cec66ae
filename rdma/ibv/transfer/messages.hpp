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
#include "rdma/ibv/transfer/first_contact.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/transport/message_channel.hpp"

#include <cstdint>

namespace hydrant::ibv {

class Messages final : public MessageChannel {
 public:
  Messages(const Options& options, PeerTable& peers, const Poster& poster, DeferredWork& deferred,
           LaneCells& cells, Counters& counters) noexcept
      : options_(options),
        peers_(peers),
        poster_(poster),
        deferred_(deferred),
        cells_(cells),
        counters_(counters) {}
  void open(FirstContact& contact) noexcept;

  uint32_t inline_bytes() const noexcept override { return eager_bytes_; }
  uint32_t cell_bytes() const noexcept override { return cell_bytes_; }
  // Also kNotReady: the peer is not connected yet, or an earlier message with a cell, or an earlier put,
  // waits for room. kBroken also when the peer has not answered for connect_ns; kResource when it has no room
  // or memory for the connection.
  Status reserve(Rank rank, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status post(Rank rank, Lane lane, uint32_t tag, const void* head,
              uint32_t bytes) noexcept override;
  Status take_cell(Rank rank, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank rank, Lane lane, const Cell& cell) noexcept override;

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
  // Whether the adapter copies a message at once, so that it needs no slot.
  bool is_copied(uint32_t bytes) const noexcept {
    return uint64_t{bytes} + kHeaderBytes <= adapter_inline_bytes_;
  }
  Status check_ready(Peer& peer, Lane lane) noexcept;
  void finish(Outgoing& room, uint32_t tag, const Cell* cell, uint32_t cell_bytes) noexcept;
  Status delay(Peer& peer) noexcept;
  void write_header(Peer& peer, std::byte* message, uint32_t word, uint32_t head_bytes) noexcept;
  uint32_t prepare(Peer& peer, uint32_t slot, uint32_t word, uint32_t head_bytes) noexcept;
  bool prepare_cell(Peer& peer, Lane lane, uint32_t slot, const Cell& cell,
                    uint32_t payload_bytes) noexcept;
  void send(Peer& peer, Lane lane, uint32_t slot, uint32_t word, uint32_t head_bytes,
            const Cell* cell, uint32_t payload_bytes) noexcept;
  bool send_report(Peer& peer) noexcept;

  const Options& options_;
  PeerTable& peers_;
  Poster poster_;
  DeferredWork& deferred_;
  LaneCells& cells_;
  Counters& counters_;
  FirstContact* contact_ = nullptr;
  bool threaded_ = true;
  uint32_t eager_bytes_ = 0;
  uint32_t adapter_inline_bytes_ = 0;
  uint32_t cell_bytes_ = 0;
};

}  // namespace hydrant::ibv
