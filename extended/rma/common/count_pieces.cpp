// Counts started, completed and failed pieces, and waits for them (wait.cpp). Called by all paths of
// put and get; completion comes from handlers and from the transport.
#include "extended/rma/common/count_pieces.hpp"

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/event/event.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/probes.hpp"
#include "firehose/base/thread.hpp"

#include <cstdio>

namespace hydrant {
namespace {

// Callbacks for wait_blocking().
bool is_done(void* context) noexcept {
  return static_cast<CompletionCounter*>(context)->all_done();
}
bool is_done_too(const void* context) noexcept {
  return static_cast<const CompletionCounter*>(context)->all_done();
}
WaitTarget completes_by_polls(const void*) noexcept { return WaitTarget::kPolls; }
void log_missing_counter(const void* context) {
  log_missing(*static_cast<const CompletionCounter*>(context));
}

// The last failure that note_unsent() has noted.
struct Unsent {
  Mutex mu;
  Status status HYDRANT_GUARDED_BY(mu) = Status::kOk;
  Rank peer HYDRANT_GUARDED_BY(mu) = 0;
  char text[512] HYDRANT_GUARDED_BY(mu) = {};
};
constinit Unsent unsent;

// Functions of counted events.
bool pieces_are_done(hydrant_event& event) noexcept { return event.counter.all_done(); }
bool pieces_are_ready(const hydrant_event& event) noexcept { return event.counter.all_done(); }
WaitTarget pieces_come_by_polls(const hydrant_event&) noexcept { return WaitTarget::kPolls; }
void log_pending_event(const hydrant_event& event) { log_missing(event.counter); }

}  // namespace

bool has_room(const RmaThread& thread, const CompletionCounter& counter) noexcept {
  return thread.under_way() < paths().depth && counter.under_way() < counter.most;
}

Status make_room(RmaThread& thread, const CompletionCounter& counter, bool immediate) noexcept {
  if (has_room(thread, counter)) [[likely]]
    return Status::kOk;
  if (immediate) return Status::kNotReady;
  Backoff backoff;
  while (!has_room(thread, counter)) {
    if (has_exit_grace_expired()) return fail(Status::kBroken, "the job is ending");
    backoff.polled(poll_all());
  }
  return Status::kOk;
}

void count_start(CompletionCounter& counter, Rank peer) noexcept {
  ++counter.started;
  counter.peer.store(peer, std::memory_order_relaxed);
  ++counter.thread->launched;
}

void uncount_start(CompletionCounter& counter) noexcept {
  --counter.started;
  --counter.thread->launched;
}

void count_done(CompletionCounter& counter) noexcept {
  HYDRANT_PROBE(rma_piece, &counter, counter.peer.load(std::memory_order_relaxed));
  counter.thread->landed.fetch_add(1, std::memory_order_release);
  // The last access: another thread may reuse the object afterwards.
  counter.completed.fetch_add(1, std::memory_order_release);
}

void count_failed(CompletionCounter& counter, Status status, Rank peer, uintptr_t at,
                  size_t bytes) noexcept {
  // A dead peer ends the job with its own rank and signal as the cause, so do not end it here.
  if (status != Status::kBroken && !is_fault_returned(counter.returns_errors)) {
    (void)explain_failure(status, peer, at, bytes);
    fatal("put, get or atomic operation: %s", last_error_text());
  }
  counter.failed_peer.store(peer, std::memory_order_relaxed);
  counter.failed_at.store(at, std::memory_order_relaxed);
  counter.failed_bytes.store(bytes, std::memory_order_relaxed);
  counter.failure.store(to_c(status), std::memory_order_relaxed);
  count_done(counter);
}

void note_unsent(CompletionCounter& pieces, Status status, Rank peer) noexcept {
  {
    const MutexLock lock(unsent.mu);
    unsent.status = status;
    unsent.peer = peer;
    (void)std::snprintf(unsent.text, sizeof unsent.text, "%s", last_error_text());
  }
  pieces.failure.store(to_c(status), std::memory_order_relaxed);
}

Status explain_failure(Status status, Rank peer, uintptr_t at, size_t bytes) noexcept {
  {
    const MutexLock lock(unsent.mu);
    if (unsent.status == status && unsent.peer == peer) return fail(status, "%s", unsent.text);
  }
  if (status == Status::kBroken) return fail(status, "rank %u is gone", peer);
  if (status == Status::kResource)
    return fail(status, "nothing can be sent to rank %u: memory or room is missing, here or there",
                peer);
  char relation[kSegmentRelationText];
  return fail(status,
              "%zu bytes at %#zx of rank %u cannot be reached: nothing is mapped there, or it is "
              "read-only%s",
              bytes, static_cast<size_t>(at), peer,
              relate_to_segment(peer, at, bytes, relation, sizeof relation));
}

void log_missing(const CompletionCounter& counter) noexcept {
  log_warning(
      "puts, gets and atomics: %llu of %llu pieces are still under way, the last with rank %u; is "
      "it "
      "polling?",
      static_cast<unsigned long long>(counter.under_way()),
      static_cast<unsigned long long>(counter.started),
      counter.peer.load(std::memory_order_relaxed));
}

Status failure_of(const CompletionCounter& counter) noexcept {
  const int failure = counter.failure.load(std::memory_order_relaxed);
  if (failure == 0) [[likely]]
    return Status::kOk;
  return explain_failure(static_cast<Status>(failure),
                         counter.failed_peer.load(std::memory_order_relaxed),
                         counter.failed_at.load(std::memory_order_relaxed),
                         counter.failed_bytes.load(std::memory_order_relaxed));
}

Status wait_for(CompletionCounter& counter) noexcept {
  const auto done = [&counter]() noexcept { return counter.all_done(); };
  if (!done() && !spin_briefly(done, []() noexcept { return WaitTarget::kPolls; })) {
    wait_blocking({.done = is_done,
                   .ready = is_done_too,
                   .where = completes_by_polls,
                   .log_pending = log_missing_counter,
                   .context = &counter});
  }
  return failure_of(counter);
}

hydrant_event* take_counted_event() noexcept {
  hydrant_event* event = take_event();
  if (event == nullptr) return nullptr;
  event->is_done = pieces_are_done;
  event->is_ready = pieces_are_ready;
  event->wait_target = pieces_come_by_polls;
  event->log_pending = log_pending_event;
  return event;
}

gex_Event_t finish_or_return_event(hydrant_event* event, const char* call) noexcept {
  if (!event->counter.all_done()) return event;
  check_failure(*event, call);
  release_event(event);
  return GEX_EVENT_INVALID;
}

void check_failure(const hydrant_event& event, const char* call) noexcept {
  const Status status = failure_of(event.counter);
  if (status == Status::kOk) [[likely]]
    return;
  // No caller can receive the code any more.
  if (event.counter.returns_errors && is_fault_returned(true))
    log_error("%s: %s (%s)", call, last_error_text(), status_name(status));
  else
    (void)return_or_abort(status, call);
}

}  // namespace hydrant
