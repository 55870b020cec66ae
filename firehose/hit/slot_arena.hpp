// Memory of region slots, which outlives the domain that used it.
//
// A pin is a pointer to a slot, and clients release late: after hydrant_domain_destroy(), or in the child of
// a fork. Slots that a pin may point to are therefore never unmapped. A released arena reads as zeros, so
// that a late release finds it not live. It serves a new domain once 240 others of its size were released
// after it, or earlier if the address space is limited. docs/decisions/0008 argues it.
//
// Cost: address space in powers of two; memory is touched only where slots are used.
#pragma once

#include "firehose/hit/region_slot.hpp"

#include <cstddef>

namespace hydrant {

struct SlotArena {
  RegionSlot* slots = nullptr;
  size_t count = 0;

  bool contains(const RegionSlot* slot) const noexcept {
    return slot >= slots && slot < slots + count;
  }
};

// The bytes of address space that arenas may take: a share of RLIMIT_AS, or all of it if that is unlimited.
size_t arena_share_bytes() noexcept;

// An arena of at least `count` slots that read as zero; null slots on failure. Any thread.
SlotArena acquire_slot_arena(size_t count) noexcept;
// `used`: no pin ever pointed to slots from there on.
void release_slot_arena(SlotArena arena, size_t used) noexcept;
// True if `slot` lies in a released arena: a pin of a destroyed domain.
bool in_released_arena(const RegionSlot* slot) noexcept;
// Around a fork; the last one in the child.
void lock_slot_arenas() noexcept;
void unlock_slot_arenas() noexcept;
void reset_slot_arenas_in_child() noexcept;

}  // namespace hydrant
