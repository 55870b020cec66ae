// Implements the gex_NBI_* functions: tests and waits for a thread's implicit operations, and access regions.
#include <hydrant/gasnet/events.h>

#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "extended/event/event.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"

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

}  // extern "C"
