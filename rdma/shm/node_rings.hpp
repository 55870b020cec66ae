// Messages between the processes of a node through shared memory: a ring per communicating pair and lane,
// cells for payloads too long for a ring, and a doorbell for rings that are not polled. The layout is in
// node_layout.hpp; docs/wire_format_shm.md argues its correctness, decision 0017 gives the reasons.
//
// Cost: a message of one line moves one cache line between two processors. poll() visits the active rings,
// not all ranks. System calls occur only at first contact, when a reader goes idle, and when one wakes up.
//
// Threads: any, if it is `threaded`; otherwise one at a time, but for disconnect().
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/shm/cells.hpp"
#include "rdma/shm/connections.hpp"
#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/shm/node_index.hpp"
#include "rdma/shm/ring.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::shm {

class NodeRings final : public MessageChannel {
 public:
  NodeRings(NodeMemory& memory, Connections& connections, bool threaded) noexcept
      : memory_(memory),
        self_(memory.area(memory.node_rank())),
        connections_(connections),
        threaded_(threaded) {}
  // Errors: kResource.
  Status init(const JobTopology& topology, const NodeIndex& index, bool has_fence) noexcept;

  uint32_t inline_bytes() const noexcept override { return kMaxInlineBytes; }
  uint32_t cell_bytes() const noexcept override { return kCellClasses[1].bytes; }

  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status post(Rank peer, Lane lane, uint32_t tag, const void* head,
              uint32_t bytes) noexcept override;
  // Errors: kNotReady; kResource: there is no memory for the first cell.
  Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept override;

  // ShmTransport's functions of these names call these two.
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept;
  void disconnect(Rank peer) noexcept;

  // Announces a sleep, with all rings idle; `*announced` receives the value for sleep_on(). False: there are
  // messages, or a doorbell has rung. *may_miss_wakeup: a message may come without a doorbell.
  bool prepare_sleep(uint32_t* announced, bool* may_miss_wakeup) noexcept;
  // The node rank of the last message's sender or target.
  uint32_t partner() const noexcept { return partner_.load(std::memory_order_relaxed); }

  // Counters of the slow paths, for tests and diagnosis.
  struct Counts {
    uint64_t doorbells_rung = 0;
    uint64_t handled_doorbells = 0;
    uint64_t rings_retired = 0;
    uint64_t fences = 0;
    uint64_t disconnected = 0;
  };
  Counts counts() const noexcept;
  uint32_t active_rings() const noexcept;

  // Rings without messages for this many polls are retired, if more than kAlwaysPolled are active. A check of
  // an empty ring costs 2 ns. Retiring rings costs one fence (15 us), and reactivating one a doorbell.
  static constexpr uint32_t kPollsBetweenReviews = 4096;
  static constexpr uint32_t kAlwaysPolled = 8;
  // The most messages taken from one ring per visit, so that one peer cannot use up the budget of a poll
  // alone.
  static constexpr uint32_t kMaxPerVisit = 16;

 private:
  static constexpr uint32_t kWords = Connections::kWords;
  using Bits = std::atomic<uint64_t>;
  struct RingSet {
    uint64_t of_lane[kLaneCount][kWords] = {};
  };

  OutRing& out(uint32_t to, Lane lane) const noexcept {
    return out_[to * kLaneCount + static_cast<uint32_t>(lane)];
  }
  InRing& in(uint32_t from, Lane lane) const noexcept {
    return in_[from * kLaneCount + static_cast<uint32_t>(lane)];
  }

  // node_rings.cpp
  OutRing* enter_ring(Rank peer, Lane lane, uint32_t lines, Status* status) noexcept;
  Status reserve_slow(OutRing& ring, uint32_t lines) noexcept;
  Status open_out(OutRing& ring) noexcept;
  void finish(OutRing& ring, bool polled) noexcept;
  void warm_next_cell(SenderCells& pool, Lane lane, uint32_t cell, uint32_t bytes) noexcept;
  void disconnect_index(uint32_t index) noexcept;
  bool stop_receiving(uint32_t index) noexcept;
  void reclaim_cells(uint32_t index) noexcept;
  bool reclaim_waiting() noexcept;

  // node_rings_poll.cpp
  uint32_t poll_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t visit(uint32_t from, Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t drain(InRing& ring, uint32_t from, Lane lane, Receiver& receiver,
                 uint32_t budget) noexcept;
  void deliver(InRing& ring, uint32_t from, Lane lane, uint64_t word, Receiver& receiver) noexcept;
  bool is_cell_backed(InRing& ring, uint32_t from, Lane lane, uint32_t cell) noexcept;
  void disconnect_corrupt(uint32_t from, const char* what, uint64_t value) noexcept;

  // node_rings_idle.cpp
  void handle_doorbells(uint32_t word, Lane lane) noexcept;
  bool open_in(uint32_t from, Lane lane) noexcept;
  void activate(uint32_t from, Lane lane) noexcept;
  void review() noexcept;
  bool retire(const RingSet& rings, uint32_t* announced, bool* all_held) noexcept;
  bool reactivate(RingSet& retired, bool all) noexcept;
  bool fence() noexcept;
  bool any_doorbell() const noexcept;

  NodeMemory& memory_;
  RankArea& self_;
  Connections& connections_;
  const bool threaded_;
  Mutex opening_mu_;  // of rings that are read
  bool has_fence_ = false;
  std::atomic<bool> fence_lost_{false};  // the kernel refuses it now: rings no longer go idle
  uint32_t ranks_ = 0;
  uint32_t words_ = 0;
  NodeIndex index_;
  std::unique_ptr<Rank[]> node_ranks_;
  std::unique_ptr<OutRing[]> out_;
  std::unique_ptr<InRing[]> in_;
  SenderCells cells_[kLaneCount];

  // Bits are set and cleared by locked instructions.
  alignas(64) Bits active_[kLaneCount][kWords] = {};
  // Relaxed, and updates may be lost: they affect only when work is done, not whether.
  std::atomic<uint32_t> polls_{0};
  std::atomic<uint32_t> partner_{0};  // node rank of the last message's sender or target
  std::atomic<uint32_t> next_[kLaneCount] = {};

  // Relaxed; updated only on slow paths.
  struct AtomicCounts {
    std::atomic<uint64_t> doorbells_rung{0}, handled_doorbells{0}, rings_retired{0}, fences{0},
        disconnected{0};
  };
  AtomicCounts counts_;
};

}  // namespace hydrant::shm
