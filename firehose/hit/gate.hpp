// The two gates of a region, of which at most one is ever open: the plain one, through which hits come, and
// the checked one (region_slot.hpp).
//
// The holder of the domain's mutex opens and shuts them. A teller that does not get the mutex shuts them
// with a value of its own (mark_gates()), which an opening that is under way finds in its way.
#pragma once

#include "firehose/hit/region_slot.hpp"

namespace hydrant {

// A gate that was shut without the mutex. No request reaches it either: no region that a monitor speaks of
// contains address 0 (publisher.cpp).
constexpr uintptr_t kMarkedGate = 1;

inline bool gate_is_shut(const RegionSlot& slot) noexcept {
  return slot.gate.load(std::memory_order_relaxed) <= kMarkedGate &&
         slot.checked_gate.load(std::memory_order_relaxed) <= kMarkedGate;
}

// False, and it stays shut, if it was marked since shut_gate(). Release: bounds, rights and key of the
// slot were written before.
inline bool open_gate(RegionSlot& slot, uintptr_t end, bool checked) noexcept {
  uintptr_t shut = 0;
  return (checked ? slot.checked_gate : slot.gate)
      .compare_exchange_strong(shut, end, std::memory_order_release, std::memory_order_relaxed);
}

// seq_cst: one half of the protocol where fences are symmetric; a plain store otherwise would do.
inline void shut_gate(RegionSlot& slot) noexcept {
  slot.gate.store(0, std::memory_order_seq_cst);
  slot.checked_gate.store(0, std::memory_order_seq_cst);
}

// Without the mutex. Also where the gate is shut: it may be about to be opened.
inline void mark_gates(RegionSlot& slot) noexcept {
  slot.gate.exchange(kMarkedGate, std::memory_order_seq_cst);
  slot.checked_gate.exchange(kMarkedGate, std::memory_order_seq_cst);
}

// The same of the plain gate alone: no hit is free of a check any more.
inline void mark_free_gate(RegionSlot& slot) noexcept {
  slot.gate.exchange(kMarkedGate, std::memory_order_seq_cst);
}

}  // namespace hydrant
