// Completion counter of puts and gets. An operation consists of pieces. The thread that starts a piece
// counts it as started; any polling thread counts it as completed. Each event has a CompletionCounter, and
// each thread has them for gex_NBI_Wait(). extended/rma/common/count_pieces.hpp has the counting.
//
// Memory order: the data of a piece is written before its completion is counted, with release. A thread
// that reads all pieces as completed, with acquire, may read the data and reuse the object. A
// completing thread does not access the object after its count.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class RmaThread;

struct CompletionCounter {
  uint64_t started = 0;                // counted by the starting thread
  std::atomic<uint64_t> completed{0};  // counted by any thread
  RmaThread* thread = nullptr;         // the thread whose room the pieces occupy
  uint64_t most = UINT64_MAX;          // maximum number under way
  std::atomic<Rank> peer{0};           // peer of the last piece, for log messages
  bool returns_errors = false;         // to the waiting call, unless HYDRANT_ON_FAULT differs

  // The last failed piece: its Status and the peer's memory that it accessed.
  std::atomic<int> failure{0};
  std::atomic<Rank> failed_peer{0};
  std::atomic<uintptr_t> failed_at{0};
  std::atomic<size_t> failed_bytes{0};

  bool all_done() const noexcept { return completed.load(std::memory_order_acquire) == started; }
  uint64_t under_way() const noexcept {
    return started - completed.load(std::memory_order_acquire);
  }
};

// Prepares a CompletionCounter for reuse.
inline void reset(CompletionCounter& counter) noexcept {
  counter.started = 0;
  counter.completed.store(0, std::memory_order_relaxed);
  counter.most = UINT64_MAX;
  counter.returns_errors = false;
  counter.failure.store(0, std::memory_order_relaxed);
}

}  // namespace hydrant
