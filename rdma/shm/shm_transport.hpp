// Messages between the processes of a node, through memory that they share: a ring per talking pair and
// lane, cells for what is too long for a ring, and a doorbell for rings that nobody looks at. The layout is
// in node_layout.hpp; docs/wire_format_shm.md says why it is right, decision 0017 why it is so.
//
// Cost: a message of one line is one line that moves from one processor to the other. poll() looks at the
// rings that are in use, not at the ranks that exist. No system call but at first contact, where a reader
// goes idle, and where one wakes up.
//
// How to wait is the caller's policy. Measured (shm_idle_bench): a poll that finds nothing takes 13 ns, a
// message is here after 160 ns, and a round trip of two that sleep after every message takes 35 us. So: poll
// for about as long as a sleep costs; where there are more ranks than processors, sched_yield() instead
// from the start; then sleep().
#pragma once

#include "rdma/shm/cells.hpp"
#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/shm/memory/peer_memory.hpp"
#include "rdma/shm/ring.hpp"
#include "rdma/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class ShmTransport final : public Transport {
 public:
  enum class Threads { kOne, kMany };

  // `memory` is attached, and outlives the transport. place.node_ranks[i] is node rank i.
  // Errors: kBadArg: place and memory disagree; kResource.
  static Status open(shm::NodeMemory& memory, const JobTopology& topology, Threads threads,
                     std::unique_ptr<ShmTransport>* transport) noexcept;

  const char* name() const noexcept override { return "shm"; }
  uint32_t inline_bytes() const noexcept override { return shm::kMaxInlineBytes; }
  uint32_t cell_bytes() const noexcept override { return shm::kCellClasses[1].bytes; }

  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status post(Rank peer, Lane lane, uint32_t tag, const void* head,
              uint32_t bytes) noexcept override;
  // Also kResource: there is no memory for the first cell.
  Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept override;

  std::byte* shared_block(Rank peer) const noexcept override;
  Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes, void* local) noexcept override;
  void* mapped(Rank peer, uintptr_t addr, size_t bytes) const noexcept override;
  Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept override;

  // By memcpy where the memory is mapped here, else by the kernel (peer_memory.hpp).
  uint32_t capabilities() const noexcept override {
    return kOneSided | kCompletesAtOnce | kPutsBeforeMessages | kMapped;
  }
  Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;
  Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;

  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  // Also returns if wake() was called since the calling thread slept last.
  using Transport::sleep;
  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  void yield() noexcept override;
  bool is_reply_imminent() const noexcept override;
  void wake_peer(Rank peer) noexcept override;
  void wake() noexcept override;
  void disconnect(Rank peer) noexcept override;

  // What the slow paths did, for tests and for people.
  struct Counts {
    uint64_t doorbells_rung = 0;
    uint64_t handled_doorbells = 0;
    uint64_t rings_retired = 0;
    uint64_t fences = 0;
    uint64_t sleeps = 0;
    uint64_t buried = 0;
  };
  Counts counts() const noexcept;
  uint32_t active_rings() const noexcept;

  // Rings that nothing came from for this many polls are retired, if more than kAlwaysPolled are looked
  // at. A look at an empty ring costs 2 ns; to retire some costs one fence (15 us), to come back a doorbell.
  static constexpr uint32_t kPollsBetweenReviews = 4096;
  static constexpr uint32_t kAlwaysPolled = 8;
  // From one ring at a time, so that one peer cannot use up the budget of a poll alone.
  static constexpr uint32_t kMaxPerVisit = 16;

 private:
  static constexpr uint32_t kWords = shm::kMaxNodeRanks / 64;
  using Bits = std::atomic<uint64_t>;
  struct RingSet {
    uint64_t of_lane[kLaneCount][kWords] = {};
  };

  ShmTransport(shm::NodeMemory& memory, bool threaded) noexcept
      : memory_(memory), self_(memory.area(memory.node_rank())), threaded_(threaded) {}
  Status init(const JobTopology& topology) noexcept;
  // Index of a rank in node_ranks; node_size() or more if it is not on this node.
  uint32_t node_index(Rank rank) const noexcept {
    const uint32_t index = rank - first_rank_;
    if (table_ == nullptr || index >= table_size_) [[likely]]
      return index;
    return table_[index];
  }
  shm::OutRing& out(uint32_t to, Lane lane) const noexcept {
    return out_[to * kLaneCount + static_cast<uint32_t>(lane)];
  }
  shm::InRing& in(uint32_t from, Lane lane) const noexcept {
    return in_[from * kLaneCount + static_cast<uint32_t>(lane)];
  }

  // shm_transport.cpp
  shm::OutRing* enter_ring(Rank peer, Lane lane, uint32_t lines, Status* status) noexcept;
  Status reserve_slow(shm::OutRing& ring, uint32_t lines) noexcept;
  Status open_out(shm::OutRing& ring) noexcept;
  void finish(shm::OutRing& ring, bool polled) noexcept;
  Status copy(Rank peer, shm::CopyDirection way, std::span<const Piece> pieces) noexcept;
  void warm_next_cell(shm::CellPool& pool, Lane lane, uint32_t cell, uint32_t bytes) noexcept;
  void disconnect_index(uint32_t index) noexcept;
  bool stop_receiving(uint32_t index) noexcept;
  void reclaim_cells(uint32_t index) noexcept;
  bool reclaim_waiting() noexcept;
  void close_out_ring(shm::OutRing& ring) noexcept;

  // shm_poll.cpp
  uint32_t poll_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t visit(uint32_t from, Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t drain(shm::InRing& ring, uint32_t from, Lane lane, Receiver& receiver,
                 uint32_t budget) noexcept;
  void deliver(shm::InRing& ring, uint32_t from, Lane lane, uint64_t word,
               Receiver& receiver) noexcept;
  bool is_cell_backed(shm::InRing& ring, uint32_t from, Lane lane, uint32_t cell) noexcept;
  void disconnect_corrupt(uint32_t from, const char* what, uint64_t value) noexcept;

  // shm_sleep.cpp
  void handle_doorbells(uint32_t word, Lane lane) noexcept;
  bool open_in(uint32_t from, Lane lane) noexcept;
  void activate(uint32_t from, Lane lane) noexcept;
  void review() noexcept;
  bool retire(const RingSet& rings, uint32_t* announced, bool* all_held) noexcept;
  bool come_back(RingSet& retired, bool all) noexcept;
  bool fence() noexcept;
  bool any_doorbell() const noexcept;
  void publish_processor() noexcept;

  shm::NodeMemory& memory_;
  shm::RankArea& self_;
  const bool threaded_;
  bool has_fence_ = false;
  std::atomic<bool> fence_lost_{false};  // the kernel took it back: nothing goes idle any more
  uint32_t ranks_ = 0;
  uint32_t words_ = 0;
  Rank first_rank_ = 0;
  uint32_t table_size_ = 0;
  std::unique_ptr<uint32_t[]> table_;  // rank - first_rank_ to node rank; null if that is the same
  std::unique_ptr<Rank[]> node_ranks_;
  std::unique_ptr<shm::OutRing[]> out_;
  std::unique_ptr<shm::InRing[]> in_;
  shm::CellPool cells_[kLaneCount];
  shm::PeerMemory peers_;

  // Rings that are looked at, and ranks that may be heard. Set and cleared by locked instructions.
  alignas(64) Bits active_[kLaneCount][kWords] = {};
  Bits living_[kWords] = {};
  // Dead of which disconnect() left what is the sending thread's alone to that thread.
  Bits dead_[kWords] = {};
  std::atomic<bool> any_dead_{false};
  // Relaxed, lossy: they decide when, not whether.
  std::atomic<uint32_t> polls_{0};
  std::atomic<uint32_t> partner_{0};  // whom a message went to or came from last
  std::atomic<uint32_t> next_[kLaneCount] = {};

  // Relaxed; only on slow paths.
  struct AtomicCounts {
    std::atomic<uint64_t> doorbells_rung{0}, handled_doorbells{0}, rings_retired{0}, fences{0},
        sleeps{0}, buried{0};
  };
  AtomicCounts counts_;
};

}  // namespace hydrant
