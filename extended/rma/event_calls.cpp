// Implements the C functions of events.h. gex_Event_Test*() runs no handlers; gex_Event_Wait*() polls
// (wait.cpp). Events are completed by their is_done() functions.
#include <hydrant/gasnet/events.h>

#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "extended/event/event.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/count_pieces.hpp"

using namespace hydrant;

namespace {

void check_event(const hydrant_event* event, const char* call) noexcept {
  if (event == GEX_EVENT_NO_OP) [[unlikely]] {
    fatal(
        "%s: GEX_EVENT_NO_OP is not an event: the operation with GEX_FLAG_IMMEDIATE did not start",
        call);
  }
  if (event->is_done == nullptr) [[unlikely]] {
    fatal("%s: this event was synced before; a success consumes it", call);
  }
}

// Tests one event; returns it to its pool if it is complete.
bool try_event(hydrant_event* event, const char* call) noexcept {
  check_event(event, call);
  if (!event->is_done(*event)) return false;
  check_failure(*event, call);
  release_event(event);
  return true;
}

// The array of events that a call received.
struct Events {
  gex_Event_t* first;
  size_t count;
  const char* call;
  bool wants_all = true;  // or one is enough

  // Overwrites completed events. True if the call's condition is met.
  bool test() const noexcept {
    size_t completed = 0;
    size_t left = 0;
    for (size_t i = 0; i < count; ++i) {
      if (first[i] == GEX_EVENT_INVALID) continue;
      if (try_event(first[i], call)) {
        first[i] = GEX_EVENT_INVALID;
        ++completed;
      } else {
        ++left;
      }
    }
    return left == 0 || (!wants_all && completed != 0);
  }
  const hydrant_event* outstanding() const noexcept {
    for (size_t i = 0; i < count; ++i) {
      if (first[i] != GEX_EVENT_INVALID) return first[i];
    }
    return nullptr;
  }
  // Before a sleep: true if any event would make progress.
  bool any_ready() const noexcept {
    for (size_t i = 0; i < count; ++i) {
      const hydrant_event* event = first[i];
      if (event != GEX_EVENT_INVALID && event->is_ready != nullptr && event->is_ready(*event))
        return true;
    }
    return false;
  }
};

WaitTarget where_events_are(const void* context) noexcept {
  const hydrant_event* event = static_cast<const Events*>(context)->outstanding();
  return event != nullptr && event->wait_target != nullptr ? event->wait_target(*event)
                                                           : WaitTarget::kUnknown;
}
bool events_done(void* context) noexcept { return static_cast<Events*>(context)->test(); }
bool events_ready(const void* context) noexcept {
  return static_cast<const Events*>(context)->any_ready();
}
void log_pending_events(const void* context) {
  const hydrant_event* event = static_cast<const Events*>(context)->outstanding();
  if (event != nullptr && event->log_pending != nullptr) event->log_pending(*event);
}

// A wait for completed events is harmless, so a client without checks may call it in a handler.
[[gnu::cold]] void wait_in_handler(const Events& events) noexcept {
  if (!events.test()) refuse_wait(events.call);
}

void wait_for_events(Events events) noexcept {
  if (handler_depth != 0) [[unlikely]]
    return wait_in_handler(events);
  if (events.test()) {
    poll_now_and_then();
    return;
  }
  if (spin_briefly([&]() noexcept { return events.test(); },
                   [&]() noexcept { return where_events_are(&events); }))
    return;
  wait_blocking({.done = events_done,
                 .ready = events_ready,
                 .where = where_events_are,
                 .log_pending = log_pending_events,
                 .context = &events});
}

}  // namespace

extern "C" {

int hydrant_event_test(gex_Event_t event) {
  const InCall in_call("gex_Event_Test");
  return try_event(event, "gex_Event_Test") ? GASNET_OK : GASNET_ERR_NOT_READY;
}

void hydrant_event_wait(gex_Event_t event) {
  const InCall in_call("gex_Event_Wait");
  if (handler_depth == 0 && try_event(event, "gex_Event_Wait")) {
    poll_now_and_then();
    return;
  }
  wait_for_events({.first = &event, .count = 1, .call = "gex_Event_Wait"});
}

int gex_Event_TestSome(gex_Event_t* pevent, size_t numevents, gex_Flags_t) {
  const InCall in_call("gex_Event_TestSome");
  const Events events{
      .first = pevent, .count = numevents, .call = "gex_Event_TestSome", .wants_all = false};
  return events.test() ? GASNET_OK : GASNET_ERR_NOT_READY;
}

void gex_Event_WaitSome(gex_Event_t* pevent, size_t numevents, gex_Flags_t) {
  const InCall in_call("gex_Event_WaitSome");
  wait_for_events(
      {.first = pevent, .count = numevents, .call = "gex_Event_WaitSome", .wants_all = false});
}

int gex_Event_TestAll(gex_Event_t* pevent, size_t numevents, gex_Flags_t) {
  const InCall in_call("gex_Event_TestAll");
  const Events events{.first = pevent, .count = numevents, .call = "gex_Event_TestAll"};
  return events.test() ? GASNET_OK : GASNET_ERR_NOT_READY;
}

void gex_Event_WaitAll(gex_Event_t* pevent, size_t numevents, gex_Flags_t) {
  const InCall in_call("gex_Event_WaitAll");
  wait_for_events({.first = pevent, .count = numevents, .call = "gex_Event_WaitAll"});
}

// This version offers no operation with GEX_FLAG_ENABLE_LEAF_LC, and complete operations have complete
// leaves.
gex_Event_t gex_Event_QueryLeaf(gex_Event_t root, gex_EC_t) {
  if (root == GEX_EVENT_NO_OP) fatal("gex_Event_QueryLeaf: GEX_EVENT_NO_OP is not an event");
  return GEX_EVENT_INVALID;
}

}  // extern "C"
