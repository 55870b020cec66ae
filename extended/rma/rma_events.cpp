// Implements blocking, NB and NBI completion of puts and gets, and the gex_NBI_* functions. rma_calls.cpp
// calls it; it starts operations by transfer() (rma_transfer.cpp).
#include "extended/rma/rma_events.hpp"

#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "extended/event/event.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "firehose/base/log.hpp"

namespace hydrant {
namespace {

bool pieces_are_done(hydrant_event& event) noexcept { return event.counter.all_done(); }
bool pieces_are_ready(const hydrant_event& event) noexcept { return event.counter.all_done(); }
WaitTarget pieces_come_by_polls(const hydrant_event&) noexcept { return WaitTarget::kPolls; }
void log_pending_event(const hydrant_event& event) { log_missing(event.counter); }

}  // namespace

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

int finish_blocking(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status == Status::kOk && what.bytes != 0) {
    CompletionCounter counter;
    status = transfer(what, counter);
    // Started pieces write to this stack frame, so wait even if others failed.
    const Status waited = wait_for(counter);
    if (status == Status::kOk) status = waited;
  }
  return return_or_abort(status, call);
}

gex_Event_t start_with_event(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                             const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status != Status::kOk || what.bytes == 0) {
    (void)return_or_abort(status, call);
    return GEX_EVENT_INVALID;
  }
  hydrant_event* event = take_counted_event();
  if (event == nullptr) {
    (void)finish_blocking(tm, rank, what, call);
    return GEX_EVENT_INVALID;
  }
  status = transfer(what, event->counter);
  if (status != Status::kOk) [[unlikely]] {
    (void)wait_for(event->counter);
    release_event(event);
    return return_or_abort(status, call) == GASNET_ERR_NOT_READY ? GEX_EVENT_NO_OP
                                                                 : GEX_EVENT_INVALID;
  }
  return finish_or_return_event(event, call);
}

int start_implicit(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status == Status::kOk && what.bytes != 0) {
    RmaThread* thread = RmaThread::mine();
    if (thread == nullptr) return finish_blocking(tm, rank, what, call);
    status = transfer(what, thread->implicit(what.direction));
  }
  return return_or_abort(status, call);
}

}  // namespace hydrant

using namespace hydrant;

namespace {

// The counters of the categories of a mask. Local completion needs no separate wait: the source is free at
// return, or, with GEX_EVENT_DEFER, when the put is complete, or that of a Long when its put is.
class Counters {
 public:
  Counters(RmaThread& thread, gex_EC_t mask) noexcept {
    if ((mask & (GEX_EC_PUT | GEX_EC_LC)) != 0) add(thread.implicit(Direction::kPut));
    if ((mask & GEX_EC_GET) != 0) add(thread.implicit(Direction::kGet));
    if ((mask & GEX_EC_RMW) != 0) add(thread.implicit_atomics());
    if ((mask & (GEX_EC_AM | GEX_EC_LC)) != 0) add(thread.implicit_longs());
  }
  CompletionCounter* const* begin() const noexcept { return all_; }
  CompletionCounter* const* end() const noexcept { return all_ + count_; }

 private:
  void add(CompletionCounter& counter) noexcept { all_[count_++] = &counter; }

  CompletionCounter* all_[4] = {};
  size_t count_ = 0;
};

RmaThread* check_implicit(const char* call) noexcept {
  // The per-thread state depends on the job's size, so it must not be created before the job is wired.
  if (!is_wired()) [[unlikely]]
    return nullptr;
  RmaThread* thread = RmaThread::mine();
  if (thread != nullptr && thread->region != nullptr) [[unlikely]]
    fatal("%s in an access region: end it first (gex_NBI_EndAccessRegion)", call);
  return thread;
}

// Reports a failure once.
void forget_failure(CompletionCounter& counter, const char* call) noexcept {
  if (counter.failure.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  (void)return_or_abort(failure_of(counter), call);
  counter.failure.store(0, std::memory_order_relaxed);
}

}  // namespace

extern "C" {

int gex_NBI_Test(gex_EC_t event_mask, gex_Flags_t) {
  const InCall in_call("gex_NBI_Test");
  RmaThread* thread = check_implicit("gex_NBI_Test");
  if (thread == nullptr) return GASNET_OK;
  const Counters counters(*thread, event_mask);
  for (const CompletionCounter* counter : counters) {
    if (!counter->all_done()) return GASNET_ERR_NOT_READY;
  }
  for (CompletionCounter* counter : counters) forget_failure(*counter, "gex_NBI_Test");
  return GASNET_OK;
}

void gex_NBI_Wait(gex_EC_t event_mask, gex_Flags_t) {
  const InCall in_call("gex_NBI_Wait");
  RmaThread* thread = check_implicit("gex_NBI_Wait");
  bool has_waited = false;
  if (thread != nullptr) {
    for (CompletionCounter* each : Counters(*thread, event_mask)) {
      CompletionCounter& counter = *each;
      if (counter.all_done() && counter.failure.load(std::memory_order_relaxed) == 0) continue;
      if (handler_depth != 0 && !counter.all_done()) refuse_wait("gex_NBI_Wait");
      has_waited = true;
      (void)wait_for(counter);
      forget_failure(counter, "gex_NBI_Wait");
    }
  }
  // A client that never has to wait still serves other ranks.
  if (!has_waited) poll_now_and_then();
}

void gex_NBI_BeginAccessRegion(gex_Flags_t) {
  const InCall in_call("gex_NBI_BeginAccessRegion");
  RmaThread* thread = check_implicit("gex_NBI_BeginAccessRegion");
  hydrant_event* event = thread != nullptr ? take_counted_event() : nullptr;
  // Without memory there is no region: its operations complete at the latest in gex_NBI_EndAccessRegion().
  if (event == nullptr) return;
  event->counter.thread = thread;
  event->counter.most = paths().nbi_depth;
  thread->region = event;
}

gex_Event_t gex_NBI_EndAccessRegion(gex_Flags_t) {
  const InCall in_call("gex_NBI_EndAccessRegion");
  // The per-thread state depends on the job's size.
  RmaThread* thread = is_wired() ? RmaThread::mine() : nullptr;
  if (thread == nullptr || thread->region == nullptr) {
    if (is_wired() && job().debug)
      fatal("gex_NBI_EndAccessRegion without gex_NBI_BeginAccessRegion");
    gex_NBI_Wait(GEX_EC_ALL, 0);
    return GEX_EVENT_INVALID;
  }
  hydrant_event* event = thread->region;
  thread->region = nullptr;
  return finish_or_return_event(event, "gex_NBI_EndAccessRegion");
}

// This version offers no operation with GEX_FLAG_ENABLE_LEAF_LC, and complete operations have complete
// leaves.
gex_Event_t gex_Event_QueryLeaf(gex_Event_t root, gex_EC_t) {
  if (root == GEX_EVENT_NO_OP) fatal("gex_Event_QueryLeaf: GEX_EVENT_NO_OP is not an event");
  return GEX_EVENT_INVALID;
}

}  // extern "C"
