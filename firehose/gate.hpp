// The two gates of a region, of which at most one is ever open: the plain one, through which hits come, and
// the checked one (region_slot.hpp).
#pragma once

#include "firehose/region_slot.hpp"

namespace hydrant {

inline bool gate_is_shut(const RegionSlot& slot) noexcept {
  return slot.gate.load(std::memory_order_relaxed) == 0 &&
         slot.checked_gate.load(std::memory_order_relaxed) == 0;
}

// Release: bounds, rights and key of the slot were written before.
inline void open_gate(RegionSlot& slot, uintptr_t end, bool checked) noexcept {
  (checked ? slot.checked_gate : slot.gate).store(end, std::memory_order_release);
}

// seq_cst: one half of the protocol where fences are symmetric; a plain store otherwise would do.
inline void shut_gate(RegionSlot& slot) noexcept {
  slot.gate.store(0, std::memory_order_seq_cst);
  slot.checked_gate.store(0, std::memory_order_seq_cst);
}

}  // namespace hydrant
