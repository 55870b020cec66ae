// The writer's side of the cells of one lane: which are free, which are on their way, and with whom.
//
// A cell comes back by a receipt that its reader writes (node_layout.hpp). Receipts are looked for only
// when no free cell is left, the oldest cell first; then more memory is taken; then it is "not now".
#pragma once

#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/spin_lock.hpp"

#include <cstdint>

namespace hydrant::shm {

// Threads: one at a time; hold `lock`.
class CellPool {
 public:
  void name(NodeMemory& memory, Lane lane) noexcept {
    memory_ = &memory;
    lane_ = lane;
  }

  // Errors: kNotReady: all are on their way; kResource: there is no memory for the first one; kBadArg:
  // longer than the longest cell.
  Status take(uint32_t bytes, uint32_t* cell) noexcept;
  // Not sent after all.
  void put_back(uint32_t cell) noexcept { add_free(cell < kSmallCells ? 0 : 1, cell); }
  // Goes to node rank `to` with the message at `position` of its ring.
  void send(uint32_t cell, uint32_t to, uint32_t position) noexcept;
  // Has this process polled so often since it last sent a cell that it seems to wait for answers?
  // `polls` counts how often it has polled.
  bool is_unhurried(uint32_t polls) noexcept;
  // The cell that is as large as `cell` and will be taken next, if there is one by now: it is taken.
  bool take_next_like(uint32_t cell, uint32_t* next) noexcept;
  // What `reader` has will not come back.
  void forget(uint32_t reader) noexcept;

  uint32_t on_their_way() const noexcept { return kinds_[0].away_count + kinds_[1].away_count; }

  SpinLock lock;

 private:
  static constexpr uint32_t kMax = kSmallCells;
  struct Kind {
    uint32_t free_count = 0;
    uint32_t away_count = 0;
    uint32_t made = 0;         // cells that have memory
    uint16_t free[kMax] = {};  // a stack: the last one that came back is the warmest
    uint16_t away[kMax] = {};  // oldest first
  };
  static_assert(kCellClasses[1].count <= kMax);

  void add_free(uint32_t kind, uint32_t cell) noexcept;
  void collect(Kind& kind) noexcept;
  Status grow(uint32_t kind) noexcept;

  NodeMemory* memory_ = nullptr;
  Lane lane_ = Lane::kRequest;
  Kind kinds_[kCellClassCount];
  uint32_t polls_ = 0;                  // of this process when it last sent a cell
  uint64_t expected_[kCellCount] = {};  // the receipt of a cell that is away
};

}  // namespace hydrant::shm
