// The sender's side of the cells of one lane: which are free, which are sent, and to which rank.
//
// A sent cell is free again once its reader has written a receipt (node_layout.hpp). take() looks for
// receipts only if no free cell is left, oldest cell first. It then reserves more memory, and returns
// kNotReady if no more is allowed.
#pragma once

#include "rdma/shm/memory/node_memory.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <cstdint>

namespace hydrant::shm {

// Threads: one at a time; hold `lock`.
class SenderCells {
 public:
  void name(NodeMemory& memory, Lane lane) noexcept {
    memory_ = &memory;
    lane_ = lane;
  }

  // Errors: kNotReady: all cells are sent; kResource: there is no memory for the first one; kBadArg: longer
  // than the longest cell.
  Status take(uint32_t bytes, uint32_t* cell) noexcept;
  // Returns a cell that was not sent.
  void put_back(uint32_t cell) noexcept { add_free(cell < kSmallCells ? 0 : 1, cell); }
  // Marks the cell as sent to node rank `to` with the message at `position` of its ring.
  void send(uint32_t cell, uint32_t to, uint32_t position) noexcept;
  // True if this process has polled so often since it last sent a cell that it seems to wait for replies.
  // `polls` is the number of its polls so far.
  bool is_unhurried(uint32_t polls) noexcept;
  // Takes the cell of the same size as `cell` that will be used next. False if none is free.
  bool take_next_like(uint32_t cell, uint32_t* next) noexcept;
  // Frees the cells that were sent to `reader`, which will write no more receipts.
  void forget(uint32_t reader) noexcept;

  SpinLock lock;

 private:
  static constexpr uint32_t kMax = kSmallCells;
  struct Kind {
    uint32_t free_count = 0;
    uint32_t away_count = 0;
    uint32_t made = 0;         // cells that have memory
    uint16_t free[kMax] = {};  // a stack: the cell freed last is the warmest in the cache
    uint16_t away[kMax] = {};  // oldest first
  };
  static_assert(kCellClasses[1].count <= kMax);

  void add_free(uint32_t kind, uint32_t cell) noexcept;
  void collect(Kind& kind) noexcept;
  Status grow(uint32_t kind) noexcept;

  NodeMemory* memory_ = nullptr;
  Lane lane_ = Lane::kRequest;
  Kind kinds_[kCellClassCount];
  uint32_t polls_ = 0;                  // polls of this process when it last sent a cell
  uint64_t expected_[kCellCount] = {};  // the receipt that frees a sent cell
};

}  // namespace hydrant::shm
