// Memory of region slots, which outlives the domain that used it.
//
// A pin is a pointer to a slot, and clients release late: after hydrant_domain_destroy(), or in the
// child of a fork. What a pin may point to is therefore never unmapped. An arena that is given back
// reads as zeros, so that a late release finds it not live; it serves a new domain once 240 others of
// its size were given back after it, or earlier where the address space is limited. docs/decisions/0008
// argues it.
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
// True if `slot` lies in an arena that was given back: a pin of a domain that is gone.
bool in_released_arena(const RegionSlot* slot) noexcept;
// Around a fork; the last for the one thread of a new process.
void lock_slot_arenas() noexcept;
void unlock_slot_arenas() noexcept;
void reset_slot_arenas_in_child() noexcept;

}  // namespace hydrant
