// Allocates cells for one lane, and frees them when their readers have written receipts. Tour "an Active
// Message", step 3: take_cell() ends here for a peer of the same node.
#include "rdma/shm/cells.hpp"

#include "rdma/shm/ring.hpp"

namespace hydrant::shm {

void SenderCells::add_free(uint32_t kind, uint32_t cell) noexcept {
  Kind& cells = kinds_[kind];
  cells.free[cells.free_count++] = static_cast<uint16_t>(cell);
}

void SenderCells::collect(Kind& kind) noexcept {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < kind.away_count; ++i) {
    const uint16_t cell = kind.away[i];
    // Pairs with the release of the receipt's store in NodeRings::deliver(): the reader has finished with
    // the bytes.
    const auto receipt =
        memory_->receipt(memory_->node_rank(), lane_, cell).receipt.load(std::memory_order_acquire);
    if (receipt == expected_[cell]) {
      kind.free[kind.free_count++] = cell;
    } else {
      kind.away[kept++] = cell;
    }
  }
  kind.away_count = kept;
}

Status SenderCells::grow(uint32_t kind) noexcept {
  Kind& cells = kinds_[kind];
  const CellClass& traits = kCellClasses[kind];
  const uint32_t first = (kind == 0 ? 0 : kSmallCells) + cells.made;
  const Status reserved = memory_->reserve_cells(memory_->node_rank(), lane_, first);
  if (reserved != Status::kOk) return reserved;
  for (uint32_t i = traits.chunk; i-- > 0;) add_free(kind, first + i);
  cells.made += traits.chunk;
  return Status::kOk;
}

Status SenderCells::take(uint32_t bytes, uint32_t* cell) noexcept {
  if (bytes > kCellClasses[1].bytes) {
    return fail(Status::kBadArg, "a payload of %u bytes: a cell has at most %u", bytes,
                kCellClasses[1].bytes);
  }
  const uint32_t kind = bytes <= kCellClasses[0].bytes ? 0 : 1;
  Kind& cells = kinds_[kind];
  if (cells.free_count == 0) collect(cells);
  if (cells.free_count == 0) {
    if (cells.made == kCellClasses[kind].count) return Status::kNotReady;
    const Status grown = grow(kind);
    // The sent cells will be freed again.
    if (grown != Status::kOk) return cells.made != 0 ? Status::kNotReady : grown;
  }
  *cell = cells.free[--cells.free_count];
  return Status::kOk;
}

void SenderCells::send(uint32_t cell, uint32_t to, uint32_t position) noexcept {
  Kind& cells = kinds_[cell < kSmallCells ? 0 : 1];
  expected_[cell] = CellReceipt::make(to, position);
  cells.away[cells.away_count++] = static_cast<uint16_t>(cell);
}

bool SenderCells::is_unhurried(uint32_t polls) noexcept {
  const uint32_t since = polls - polls_;
  polls_ = polls;
  return since >= kPollsOfWaiter;
}

bool SenderCells::take_next_like(uint32_t cell, uint32_t* next) noexcept {
  const uint32_t kind = cell < kSmallCells ? 0 : 1;
  Kind& cells = kinds_[kind];
  if (cells.free_count == 0) collect(cells);
  // Two cells in a ping-pong are too few: the receipt of the first may arrive as late as the message with the
  // second.
  constexpr uint32_t kAtLeast = 4;
  if (cells.free_count == 0 && (cells.made >= kAtLeast || grow(kind) != Status::kOk)) return false;
  *next = cells.free[--cells.free_count];
  return true;
}

void SenderCells::forget(uint32_t reader) noexcept {
  for (Kind& cells : kinds_) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cells.away_count; ++i) {
      const uint16_t cell = cells.away[i];
      if (expected_[cell] >> 32 == uint64_t{reader} + 1) {
        cells.free[cells.free_count++] = cell;
      } else {
        cells.away[kept++] = cell;
      }
    }
    cells.away_count = kept;
  }
}

static_assert(kCellClasses[0].count % kCellClasses[0].chunk == 0 &&
              kCellClasses[1].count % kCellClasses[1].chunk == 0);

}  // namespace hydrant::shm
