// A hit on a peer's memory: as in hit_path.cpp, but the thread's state in the domain is looked up instead of
// being in its hit context, so that local and remote pins can take turns without reloading that.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/hit/find_and_hold.hpp"
#include "firehose/pin/pin_handle.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The calling thread's state in the live domain of this handle; null if it has none yet.
inline ThreadDomain* find_thread_state(uint64_t handle) noexcept {
  Thread* thread = t_hit_context.thread;
  if (reinterpret_cast<uintptr_t>(thread) <= 1) return nullptr;  // not yet created, or destroyed
  ThreadDomain* state = thread->domains[handle % kMaxDomains].load(std::memory_order_relaxed);
  return state != nullptr && state->handle == handle ? state : nullptr;
}

// Takes a hold on the region that the thread's table proposes; null: look further.
inline const RegionSlot* hold_without_context(uint64_t handle, uintptr_t first, uintptr_t last,
                                              uint32_t need) noexcept {
  ThreadDomain* state = find_thread_state(handle);
  if (state == nullptr || last < first) return nullptr;
  return find_and_hold(*state, first, last, need);
}

// Releases a hold; false: hydrant_release() has to do it.
inline bool drop_without_context(const RegionSlot* slot) noexcept {
  const uint64_t tag = slot->tag.load(std::memory_order_relaxed);
  if (tag == 0) return false;
  ThreadDomain* state = find_thread_state(tag);
  if (state == nullptr) return false;
  drop_hold(state->counts[slot->index]);
  return true;
}

// For layers of this project above the caches, which take a longer path after a miss. Takes a hold on memory
// that is already a firehose of the calling thread; hydrant_remote_release() releases it. A null region
// means a miss: nothing is counted, and there is no error text. Cost: some 60 instructions.
hydrant_pin_t try_remote_hit(hydrant_remote_t end, uint32_t peer, uintptr_t addr, size_t len,
                             uint32_t access) noexcept;
// The same for this process's own memory, for hydrant_release(). Cost: some 30 instructions.
inline hydrant_pin_t try_local_hit(hydrant_domain_t domain, const void* addr, size_t len,
                                   uint32_t access) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(addr);
  const RegionSlot* slot = hold_without_context(domain, first, first + len - 1, access);
  return slot != nullptr ? hydrant_pin_t{slot->as_public(), issue_hold_ticket()} : hydrant_pin_t{};
}
// Subtracts a hit that the calling thread has just had and releases unused: the longer path finds the same
// memory, and counts that hit.
inline void uncount_hit(const hydrant_pin_t& pin) noexcept {
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  ThreadDomain* state = find_thread_state(slot->tag.load(std::memory_order_relaxed));
  if (state != nullptr) ThreadCounters::add(state->hits(), UINT64_MAX);
}

}  // namespace hydrant
