// The object behind gex_Event_t: an operation whose completion can be tested. The function that starts
// an operation takes an event, sets its functions, and returns it to the client. The call that finds it
// complete returns it to its pool.
//
// Each thread has an event pool. Any thread may return an event: to its own pool without atomics, to
// another pool by one compare-and-swap. When a thread ends, a later thread adopts its pool, with the
// events still outstanding. So memory is bounded by the maximum number of outstanding events.
#pragma once

#include "extended/event/completion_counter.hpp"

#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

class EventPool;

// The processor of the awaited ranks, as far as known, or what else completes the operation.
enum class WaitTarget : uint8_t {
  kUnknown,
  kOtherProcessors,
  kThisProcessor,  // an awaited rank needs this processor: yield to it
  kAdapter,        // an adapter, which writes memory and wakes no thread
  kPolls,          // only polls complete it, in any thread
};

}  // namespace hydrant

struct hydrant_event {
  // Tests completion; may advance the operation without running handlers. Null: event not in use.
  bool (*is_done)(hydrant_event& event) noexcept = nullptr;
  // True if is_done() would succeed or make progress; checked just before a sleep. Null: only messages
  // and is_done() can complete it.
  bool (*is_ready)(const hydrant_event& event) noexcept = nullptr;
  // Null: unknown.
  hydrant::WaitTarget (*wait_target)(const hydrant_event& event) noexcept = nullptr;
  // Logs in one line what is missing, when a wait takes long. May be null.
  void (*log_pending)(const hydrant_event& event) = nullptr;
  // State of the operation: `object` and `number` for barriers and similar, `counter` for puts and gets.
  void* object = nullptr;
  uint64_t number = 0;
  hydrant::CompletionCounter counter;

  // State of the pool.
  hydrant_event* next = nullptr;
  hydrant::EventPool* pool = nullptr;
};

namespace hydrant {

// Returns null if there is no memory: the caller then waits and returns GEX_EVENT_INVALID.
hydrant_event* take_event() noexcept;
void release_event(hydrant_event* event) noexcept;

// Counts over all pools, for tests.
struct EventCounts {
  uint64_t events = 0;
  uint64_t pools = 0;
};
EventCounts event_counts() noexcept;

}  // namespace hydrant
