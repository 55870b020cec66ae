// Takes an event for local completion, and hands it to the caller. Longs that leave their source in place use
// it (extended/rma/long_payload.cpp).
#include "extended/rma/leaf_event.hpp"

#include "extended/event/event.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"

#include <utility>

namespace hydrant {

LeafEvent::LeafEvent(gex_Event_t* leaf) noexcept : leaf_(leaf) {
  if (leaf != GEX_EVENT_GROUP) event_ = take_counted_event();
}

LeafEvent::~LeafEvent() {
  if (event_ != nullptr) release_event(event_);
}

CompletionCounter* LeafEvent::count(Rank peer) noexcept {
  RmaThread* const thread = RmaThread::mine();
  if (thread == nullptr || (leaf_ != GEX_EVENT_GROUP && event_ == nullptr)) return nullptr;
  CompletionCounter& counter = event_ != nullptr ? event_->counter : thread->implicit_longs();
  // Completions of the thread's implicit operations under way read it.
  if (counter.thread != thread) counter.thread = thread;
  if (!has_room(*thread, counter)) return nullptr;
  count_start(counter, peer);
  return &counter;
}

void LeafEvent::hand_over() noexcept {
  if (event_ != nullptr) *leaf_ = std::exchange(event_, nullptr);
}

}  // namespace hydrant
