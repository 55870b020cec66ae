// Attaches threads to a domain and detaches them. Every slow call begins with current_thread_state().
#include "firehose/cache/thread_states.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/cache/coherence/invalidator.hpp"

#include <algorithm>
#include <new>

namespace hydrant {
namespace {

// Block size by which a thread's table distinguishes regions: the bucket, or 64 KiB if regions have any
// length.
uint32_t first_shift(const DomainConfig& config) {
  if (config.mode != HYDRANT_MODE_PAGE) return 16;
  return std::min(static_cast<uint32_t>(__builtin_ctzll(config.granule_bytes)), 40u);
}

}  // namespace

ThreadDomain* ThreadStates::current_thread_state() noexcept {
  Thread* thread = this_thread();
  if (thread == nullptr) {
    const CancellationDisabled guard;
    parts_.watch.sync_new_memory();  // the thread may not have done so
    return nullptr;
  }
  ThreadDomain* state =
      thread->domains[parts_.handle % kMaxDomains].load(std::memory_order_relaxed);
  if (thread->ended.load(std::memory_order_relaxed) != nullptr) free_ended_states(*thread);
  if (state == nullptr) {
    state = create(*thread);
    if (state == nullptr) return nullptr;
  }
  if (thread->current != state) load_hit_context(*state);
  return state;
}

ThreadDomain* ThreadStates::create(Thread& thread) noexcept {
  const CancellationDisabled guard;
  parts_.watch.sync_new_memory();
  reserve_error_text();  // so that failing under the mutex does not allocate
  auto* state = new (std::nothrow) ThreadDomain;
  if (state == nullptr) return nullptr;
  state->owner = this;
  state->thread = &thread;
  state->handle = parts_.handle;
  if (!state->set_up(&parts_.store.slot(kNoRegion), parts_.store.count(),
                     first_shift(parts_.config))) {
    delete state;
    return nullptr;
  }
  thread.domains[parts_.handle % kMaxDomains].store(state, std::memory_order_relaxed);
  const CacheLock lock(parts_.mu);
  parts_.invalidator.settle_pending(lock);
  parts_.holds.attach(lock, *state);
  return state;
}

void ThreadStates::detach(ThreadDomain& state) noexcept {
  {
    const CacheLock lock(parts_.mu);
    parts_.invalidator.settle_pending(lock);
    parts_.holds.detach(lock, state);
    CacheTotals::add(parts_.totals.of(lock), state);
  }
  state.thread->domains[parts_.handle % kMaxDomains].store(nullptr, std::memory_order_relaxed);
}

void ThreadStates::detach_all() noexcept {
  for (;;) {
    ThreadDomain* state = nullptr;
    {
      const CacheLock lock(parts_.mu);
      state = parts_.holds.first_thread(lock);
    }
    if (state == nullptr) return;
    detach(*state);
    // Its context may still show it: only the thread itself may free it.
    state->next = state->thread->ended.load(std::memory_order_relaxed);
    state->thread->ended.store(state, std::memory_order_relaxed);
  }
}

}  // namespace hydrant
