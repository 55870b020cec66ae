// Memory of region slots, which outlives the domain that used it.
//
// A pin is a pointer to a slot, and clients release late: after hydrant_domain_destroy(), or in the child
// of a fork. So arenas are kept mapped (they read as zero once given back: a released pin is then recognised
// as not live), up to 256 of them, and are wiped in children, told of the fork or not. Reuse is
// first-in-first-out over at least kRetained arenas.
#pragma once

#include "firehose/region_slot.hpp"

#include <cstddef>

namespace hydrant {

struct SlotArena {
  RegionSlot* slots = nullptr;
  size_t count = 0;

  bool contains(const RegionSlot* slot) const noexcept {
    return slot >= slots && slot < slots + count;
  }
};

// Null slots on failure. Any thread.
SlotArena acquire_slot_arena(size_t count) noexcept;
void release_slot_arena(SlotArena arena) noexcept;
// True if `slot` lies in an arena that was given back: a pin of a domain that is gone.
bool in_released_arena(const RegionSlot* slot) noexcept;
// Around a fork; the last for the one thread of a new process.
void lock_slot_arenas() noexcept;
void unlock_slot_arenas() noexcept;
void reset_slot_arenas_in_child() noexcept;

}  // namespace hydrant
