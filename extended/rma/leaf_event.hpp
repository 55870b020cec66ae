// Counts an operation for the place that a caller passes for its local completion: an event of its own, or
// the thread's implicit operations (GEX_EVENT_GROUP).
//
// Threads: the calling thread's.
#pragma once

#include <hydrant/gasnet/events.h>

#include "extended/event/completion_counter.hpp"

namespace hydrant {

class LeafEvent {
 public:
  // `leaf`: GEX_EVENT_GROUP, or the place for an event.
  explicit LeafEvent(gex_Event_t* leaf) noexcept;
  // Releases the event, unless the caller has got it.
  ~LeafEvent();
  LeafEvent(const LeafEvent&) = delete;
  LeafEvent& operator=(const LeafEvent&) = delete;

  // Counts a piece; null: there is no memory, or no room.
  CompletionCounter* count(Rank peer) noexcept;
  // Writes the event to its place. Call it once the counted piece is under way.
  void hand_over() noexcept;

 private:
  gex_Event_t* const leaf_;
  hydrant_event* event_ = nullptr;
};

}  // namespace hydrant
