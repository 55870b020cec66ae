// What stands behind gex_Event_t: something that was started and can be asked whether it is complete. Whoever
// starts something takes an event, fills in how to ask, and hands it out; the call that finds it complete
// gives it back.
//
// Events come from a pool of the thread that takes them. Any thread may give one back: to its own pool
// without atomics, to another's by one compare-and-swap. A pool whose thread ends is kept, with what is still
// out of it, for the next thread that needs one: memory is bounded by the most that was ever outstanding.
#pragma once

#include "extended/pieces.hpp"

#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

class EventPool;

// Where those run who are waited for, as far as is known.
enum class WaitsFor : uint8_t {
  kUnknown,
  kOtherProcessors,
  kThisProcessor,  // somebody needs the one of the calling thread: looking is in vain
  kAdapter,        // one that writes here and wakes nobody
  kPolls,          // nobody: polls bring it, of whichever thread
};

}  // namespace hydrant

struct hydrant_event {
  // Whether it is complete; may do what can be done for it without running handlers. Null: not in use.
  bool (*is_done)(hydrant_event& event) noexcept = nullptr;
  // Whether is_done() would be true or get on, for a thread that is about to sleep. Null: only messages and
  // what is_done() does can complete it.
  bool (*is_ready)(const hydrant_event& event) noexcept = nullptr;
  // Null: not known.
  hydrant::WaitsFor (*waits_for)(const hydrant_event& event) noexcept = nullptr;
  // For a wait that takes long: says in one line what is missing. Null: nobody knows.
  void (*complain)(const hydrant_event& event) = nullptr;
  // Theirs: of barriers and the like, and of puts and gets.
  void* object = nullptr;
  uint64_t number = 0;
  hydrant::Pieces pieces;

  // The pool's.
  hydrant_event* next = nullptr;
  hydrant::EventPool* pool = nullptr;
};

namespace hydrant {

// Null if there is no memory for one: then wait, and answer GEX_EVENT_INVALID.
hydrant_event* take_event() noexcept;
void give_event(hydrant_event* event) noexcept;

// All pools together, for tests: events that exist, and pools.
struct EventCounts {
  uint64_t events = 0;
  uint64_t pools = 0;
};
EventCounts event_counts() noexcept;

}  // namespace hydrant
