// What puts and gets report to. An operation is carried out in pieces: whoever starts one counts it here, and
// whoever hears that it is complete (any thread that polls) counts that. An event has a Pieces, and so has
// what a thread waits for with gex_NBI_Wait().
//
// Memory order: a piece's data is written before it is counted, with release; who finds all counted, with
// acquire, may read the data and give the object back. Nobody touches it after his count.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class RmaThread;

struct Pieces {
  uint64_t started = 0;                // by the thread that starts them
  std::atomic<uint64_t> completed{0};  // by anybody
  RmaThread* thread = nullptr;         // whose room they take
  uint64_t most = UINT64_MAX;          // that may be under way
  std::atomic<Rank> peer{0};           // of the last one, for messages
  bool returns_errors = false;         // to whoever waits, unless HYDRANT_ON_FAULT says otherwise

  // The last piece that could not be done: a Status, and which of the peer's memory it was about.
  std::atomic<int> failure{0};
  std::atomic<Rank> failed_peer{0};
  std::atomic<uintptr_t> failed_at{0};
  std::atomic<size_t> failed_bytes{0};

  bool all_done() const noexcept { return completed.load(std::memory_order_acquire) == started; }
  uint64_t under_way() const noexcept {
    return started - completed.load(std::memory_order_acquire);
  }
};

// A piece of `pieces` was started by the thread that owns them, which has room for it.
void count_start(Pieces& pieces, Rank peer) noexcept;
// It was not started after all.
void uncount_start(Pieces& pieces) noexcept;
// It is complete. Any thread.
void count_done(Pieces& pieces) noexcept;
// It could not be done, because of [at, at+bytes) of `peer`. Any thread; ends the job if that is what
// HYDRANT_ON_FAULT wants.
void count_failed(Pieces& pieces, Status status, Rank peer, uintptr_t at, size_t bytes) noexcept;

// For a Pieces that is used again.
void reset(Pieces& pieces) noexcept;

// Waits until all are complete; says after HYDRANT_WAIT_WARN what is missing. Not in handlers.
// Errors: that of a piece that failed.
Status wait_for(Pieces& pieces) noexcept;
// Of complete ones: the error of one that failed, with its text.
Status failure_of(const Pieces& pieces) noexcept;
// One line: how many are missing.
void complain_of(const Pieces& pieces) noexcept;

// The text for memory of `peer` that is not there; answers `status`.
Status explain_failure(Status status, Rank peer, uintptr_t at, size_t bytes) noexcept;

}  // namespace hydrant
