// Allocates events from per-thread pools. All nonblocking operations call take_event() and release_event().
#include "extended/event/event.hpp"

#include "extended/event/thread_local_pool.hpp"

#include <atomic>
#include <new>

namespace hydrant {
namespace {

constexpr uint32_t kChunkEvents = 64;
}  // namespace

class EventPool {
 public:
  hydrant_event* take() noexcept {
    hydrant_event* event = events_.take();
    if (event == nullptr && grow()) event = events_.take();
    return event;
  }
  void release(hydrant_event* event) noexcept {
    if (ThreadLocalPool<EventPool>::is_mine(this)) {
      events_.free_local(event);
    } else {
      events_.free_from_any(event);
    }
  }
  uint64_t made() const noexcept { return made_.load(std::memory_order_relaxed); }

  void joined() noexcept {}
  void left() noexcept {}
  EventPool* next_of_all = nullptr;
  EventPool* next_orphan = nullptr;

 private:
  // Never freed, because events may stay outstanding for ever.
  struct Chunk {
    hydrant_event events[kChunkEvents];
    Chunk* next = nullptr;
  };

  bool grow() noexcept {
    auto* chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return false;
    chunk->next = chunks_;
    chunks_ = chunk;
    for (hydrant_event& event : chunk->events) {
      event.pool = this;
      events_.free_local(&event);
    }
    made_.store(made() + kChunkEvents, std::memory_order_relaxed);
    return true;
  }

  CrossThreadFreeList<hydrant_event> events_;
  Chunk* chunks_ = nullptr;
  std::atomic<uint64_t> made_{0};
};

hydrant_event* take_event() noexcept {
  EventPool* pool = ThreadLocalPool<EventPool>::mine();
  return pool != nullptr ? pool->take() : nullptr;
}

void release_event(hydrant_event* event) noexcept {
  event->is_done = nullptr;
  event->is_ready = nullptr;
  event->wait_target = nullptr;
  event->log_pending = nullptr;
  event->object = nullptr;
  event->number = 0;
  reset(event->counter);
  event->pool->release(event);
}

EventCounts event_counts() noexcept {
  EventCounts counts;
  ThreadLocalPool<EventPool>::for_each([&counts](const EventPool& pool) {
    ++counts.pools;
    counts.events += pool.made();
  });
  return counts;
}

}  // namespace hydrant
