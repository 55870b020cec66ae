// Completion counter of puts and gets. An operation consists of pieces. The thread that starts a piece
// counts it as started; any polling thread counts it as completed. Each event has a CompletionCounter, and
// each thread has them for gex_NBI_Wait().
//
// Memory order: the data of a piece is written before its completion is counted, with release. A thread
// that reads all pieces as completed, with acquire, may read the data and reuse the object. A
// completing thread does not access the object after its count.
#pragma once

#include "firehose/base/status.hpp"
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

// Counts a started piece. Called by the owning thread, which has checked that there is room.
void count_start(CompletionCounter& counter, Rank peer) noexcept;
// Reverts count_start(): the piece could not be started.
void uncount_start(CompletionCounter& counter) noexcept;
// Counts a completed piece. Any thread.
void count_done(CompletionCounter& counter) noexcept;
// Counts a failed piece, which accessed [at, at+bytes) of `peer`. Any thread. Ends the job if
// HYDRANT_ON_FAULT demands it.
void count_failed(CompletionCounter& counter, Status status, Rank peer, uintptr_t at,
                  size_t bytes) noexcept;

// Prepares a CompletionCounter for reuse.
void reset(CompletionCounter& counter) noexcept;

// Waits until all pieces are complete; after HYDRANT_WAIT_WARN it logs what is missing. Not in
// handlers. Errors: that of a failed piece.
Status wait_for(CompletionCounter& counter) noexcept;
// After completion: the error of a failed piece, with its text, or kOk.
Status failure_of(const CompletionCounter& counter) noexcept;
// Logs in one line how many pieces are missing.
void log_missing(const CompletionCounter& counter) noexcept;

// Sets the error text for unreachable memory of `peer`; returns `status`.
Status explain_failure(Status status, Rank peer, uintptr_t at, size_t bytes) noexcept;

}  // namespace hydrant
