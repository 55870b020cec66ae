// Counts the pieces of puts, gets and atomics in their CompletionCounter, or that of their event, limits how
// many are under way, and waits for them.
#pragma once

#include <hydrant/gasnet/events.h>

#include "extended/event/completion_counter.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class RmaThread;

// True if the thread, and `counter`, may start one more piece.
bool has_room(const RmaThread& thread, const CompletionCounter& counter) noexcept;
// Polls until the thread, and `counter`, may start one more piece. Errors: kNotReady: `immediate`, and
// there is no room; kBroken: the job is ending.
Status make_room(RmaThread& thread, const CompletionCounter& counter, bool immediate) noexcept;

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
// Notes that a piece could not be sent to `peer`; last_error_text() is the reason. The thread that waits for
// the pieces has no text of its own, so that of the last such failure is kept. Any thread.
void note_unsent(CompletionCounter& pieces, Status status, Rank peer) noexcept;

// Waits until all pieces are complete; after HYDRANT_WAIT_WARN it logs what is missing. Not in
// handlers. Errors: that of a failed piece.
Status wait_for(CompletionCounter& counter) noexcept;
// After completion: the error of a failed piece, with its text, or kOk.
Status failure_of(const CompletionCounter& counter) noexcept;
// Logs in one line how many pieces are missing.
void log_missing(const CompletionCounter& counter) noexcept;

// Sets the error text for unreachable memory of `peer`, or that of note_unsent(); returns `status`.
Status explain_failure(Status status, Rank peer, uintptr_t at, size_t bytes) noexcept;

// Returns an event whose CompletionCounter is ready for counting; null if there is no memory.
hydrant_event* take_counted_event() noexcept;
// Called after everything was started: returns the event, or, if all pieces are complete, checks for
// failures, releases the event and returns GEX_EVENT_INVALID.
gex_Event_t finish_or_return_event(hydrant_event* event, const char* call) noexcept;
// Reports a failed piece of a completed event: ends the job, or logs it if the event belongs to a call
// that returns errors.
void check_failure(const hydrant_event& event, const char* call) noexcept;

}  // namespace hydrant
