// A hit on a peer's memory: as in hit_path.cpp, but the thread's state in the domain is looked up instead of
// being in its window, so that local and remote pins can take turns without reloading that.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/hold.hpp"
#include "firehose/pin_handle.hpp"
#include "firehose/thread_state.hpp"
#include "firehose/thread_window.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The calling thread's state in the live domain of this handle; null if it has none yet.
inline ThreadDomain* state_of(uint64_t handle) noexcept {
  Thread* thread = t_window.thread;
  if (reinterpret_cast<uintptr_t>(thread) <= 1) return nullptr;  // none yet, or past its end
  ThreadDomain* state = thread->domains[handle % kMaxDomains].load(std::memory_order_relaxed);
  return state != nullptr && state->handle == handle ? state : nullptr;
}

// A hold on the region that the thread's table proposes, in either of its places; null: look further. (Where
// regions are smaller than the table's blocks the second place is as frequent as the first.)
inline const RegionSlot* hold_beside_window(uint64_t handle, uintptr_t first, uintptr_t last,
                                            uint32_t need) noexcept {
  ThreadDomain* state = state_of(handle);
  if (state == nullptr || last < first) return nullptr;
  const size_t entry = (first >> state->shift) & (state->table.size() - 1);
  const RegionSlot* slot = state->table[entry];
  if (!hold_if_open(*slot, state->counts[slot->index], first, last, need)) [[unlikely]] {
    slot = state->second_choice(first);
    if (slot->index == kNoRegion ||
        !hold_if_open(*slot, state->counts[slot->index], first, last, need))
      return nullptr;
  }
  ThreadCounters::add(state->hits());
  return slot;
}

// Gives a hold back; false: hydrant_release() has to.
inline bool drop_beside_window(const RegionSlot* slot) noexcept {
  const uint64_t tag = slot->tag.load(std::memory_order_relaxed);
  if (tag == 0) return false;
  ThreadDomain* state = state_of(tag);
  if (state == nullptr) return false;
  drop_hold(state->counts[slot->index]);
  return true;
}

// For layers of this project above the caches, to whom a miss is only a reason to take a longer way: a hold
// that hydrant_remote_release() gives back, on memory that is a firehose of the calling thread already. Null
// region: look further; nothing is counted, and there is no text. Cost: some 60 instructions.
hydrant_pin_t hit_remote(hydrant_remote_t end, uint32_t peer, uintptr_t addr, size_t len,
                         uint32_t access) noexcept;
// The same of this process's own memory, for hydrant_release(). Cost: some 30 instructions.
inline hydrant_pin_t hit_local(hydrant_domain_t domain, const void* addr, size_t len,
                               uint32_t access) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(addr);
  const RegionSlot* slot = hold_beside_window(domain, first, first + len - 1, access);
  return slot != nullptr ? hydrant_pin_t{slot->as_public(), issue_ticket()} : hydrant_pin_t{};
}
// Of a hold that the calling thread has just taken by one of these and gives back unused: the longer way
// finds the same memory, and counts that.
inline void uncount_hit(const hydrant_pin_t& pin) noexcept {
  const RegionSlot* slot = RegionSlot::from_public(pin.region);
  ThreadDomain* state = state_of(slot->tag.load(std::memory_order_relaxed));
  if (state != nullptr) ThreadCounters::add(state->hits(), UINT64_MAX);
}

}  // namespace hydrant
