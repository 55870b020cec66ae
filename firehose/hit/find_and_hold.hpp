// Find-and-hold in C++: the slot that a thread's table proposes for an address, and a hold on it.
// hit_path.cpp has the same in assembly.
#pragma once

#include "firehose/hit/hit_context.hpp"
#include "firehose/hit/hold.hpp"
#include "firehose/hit/thread_state.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Takes a hold on the proposed slot if it is open and covers the request: a hit of the thread that owns
// `counts`.
inline bool hold_proposed(const RegionSlot& slot, HoldCount* counts, uintptr_t first,
                          uintptr_t last, uint32_t need) noexcept {
  if (!hold_if_open(slot, counts[slot.index], first, last, need)) [[unlikely]]
    return false;
  ThreadCounters::add(hits_before(counts));
  return true;
}

// Tries both places of the thread's table; null: neither has the slot. (If regions are smaller than the
// table's blocks, the second place is as frequent as the first.)
inline const RegionSlot* find_and_hold(ThreadDomain& state, uintptr_t first, uintptr_t last,
                                       uint32_t need) noexcept {
  const RegionSlot* slot = state.table[(first >> state.shift) & (state.table.size() - 1)];
  if (hold_proposed(*slot, state.counts, first, last, need)) [[likely]]
    return slot;
  slot = state.second_choice(first);
  if (slot->index == kNoRegion || !hold_proposed(*slot, state.counts, first, last, need))
    return nullptr;
  return slot;
}

}  // namespace hydrant
