#include "extended/event.hpp"

#include "firehose/base/thread.hpp"

#include <atomic>
#include <memory>
#include <new>

namespace hydrant {
namespace {

constexpr uint32_t kChunkEvents = 64;

struct Chunk {
  hydrant_event events[kChunkEvents];
  Chunk* next = nullptr;
};

}  // namespace

class EventPool {
 public:
  hydrant_event* take() noexcept {
    if (free_ == nullptr) {
      // All at once, by their owner alone: nothing is ever taken from the middle, so no tag is needed
      // against the same event coming back.
      free_ = returned_.exchange(nullptr, std::memory_order_acquire);
      if (free_ == nullptr && !grow()) return nullptr;
    }
    hydrant_event* event = free_;
    free_ = event->next;
    return event;
  }
  void give_mine(hydrant_event* event) noexcept {
    event->next = free_;
    free_ = event;
  }
  void give_back(hydrant_event* event) noexcept {
    hydrant_event* head = returned_.load(std::memory_order_relaxed);
    do {
      event->next = head;
      // Pairs with the acquire in take().
    } while (!returned_.compare_exchange_weak(head, event, std::memory_order_release,
                                              std::memory_order_relaxed));
  }
  uint64_t events() const noexcept { return events_.load(std::memory_order_relaxed); }

  EventPool* next_pool = nullptr;    // all of them
  EventPool* next_orphan = nullptr;  // those whose threads have ended

 private:
  bool grow() noexcept {
    auto* chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return false;
    chunk->next = chunks_;
    chunks_ = chunk;
    for (hydrant_event& event : chunk->events) {
      event.pool = this;
      give_mine(&event);
    }
    events_.store(events() + kChunkEvents, std::memory_order_relaxed);
    return true;
  }

  hydrant_event* free_ = nullptr;  // the owner's
  Chunk* chunks_ = nullptr;        // never freed: an event may be out for ever
  std::atomic<uint64_t> events_{0};
  // Written by other threads.
  alignas(64) std::atomic<hydrant_event*> returned_{nullptr};
};

namespace {

// All pools, and those without a thread. Only when a thread first takes an event, and when it ends.
constinit Mutex pools_mu;
constinit EventPool* all_pools HYDRANT_GUARDED_BY(pools_mu) = nullptr;
constinit EventPool* orphans HYDRANT_GUARDED_BY(pools_mu) = nullptr;

constinit thread_local EventPool* my_pool = nullptr;
constinit thread_local bool thread_is_ending = false;

struct Owner {
  ~Owner() {
    thread_is_ending = true;
    EventPool* pool = my_pool;
    my_pool = nullptr;
    if (pool == nullptr) return;
    const MutexLock lock(pools_mu);
    pool->next_orphan = orphans;
    orphans = pool;
  }
};

[[gnu::noinline]] EventPool* adopt_pool() noexcept {
  // What the destructors of other thread-local objects start has no pool to come from.
  if (thread_is_ending) return nullptr;
  static thread_local Owner owner;
  (void)&owner;
  const MutexLock lock(pools_mu);
  EventPool* pool = orphans;
  if (pool != nullptr) {
    orphans = pool->next_orphan;
  } else {
    pool = new (std::nothrow) EventPool;
    if (pool == nullptr) return nullptr;
    pool->next_pool = all_pools;
    all_pools = pool;
  }
  my_pool = pool;
  return pool;
}

}  // namespace

hydrant_event* take_event() noexcept {
  EventPool* pool = my_pool;
  if (pool == nullptr) [[unlikely]] {
    pool = adopt_pool();
    if (pool == nullptr) return nullptr;
  }
  return pool->take();
}

void give_event(hydrant_event* event) noexcept {
  EventPool* pool = event->pool;
  *event = hydrant_event{};
  event->pool = pool;
  if (pool == my_pool) {
    pool->give_mine(event);
  } else {
    pool->give_back(event);
  }
}

EventCounts event_counts() noexcept {
  const MutexLock lock(pools_mu);
  EventCounts counts;
  for (const EventPool* pool = all_pools; pool != nullptr; pool = pool->next_pool) {
    ++counts.pools;
    counts.events += pool->events();
  }
  return counts;
}

}  // namespace hydrant
