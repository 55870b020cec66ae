// The two gates of a region, of which at most one is ever open: the plain one, through which hits come, and
// the checked one (region_slot.hpp).
//
// The holder of the domain's mutex opens and shuts them. An invalidation that does not get the mutex
// shuts them with a value of its own (mark_gates()), which makes an opening under way fail.
#pragma once

#include "firehose/hit/region_slot.hpp"

namespace hydrant {

// The value of a gate that was shut without the mutex. No request reaches it: no watched region contains
// address 0 (publisher.cpp).
constexpr uintptr_t kMarkedGate = 1;

inline bool gate_is_shut(const RegionSlot& slot) noexcept {
  return slot.gate.load(std::memory_order_relaxed) <= kMarkedGate &&
         slot.checked_gate.load(std::memory_order_relaxed) <= kMarkedGate;
}

// False, and the gate stays shut, if it was marked since shut_gate(). Release: bounds, rights and key of the
// slot were written before.
inline bool open_gate(RegionSlot& slot, uintptr_t end, bool checked) noexcept {
  uintptr_t shut = 0;
  return (checked ? slot.checked_gate : slot.gate)
      .compare_exchange_strong(shut, end, std::memory_order_release, std::memory_order_relaxed);
}

// seq_cst is one half of the protocol with symmetric fences; otherwise a plain store would be enough.
inline void shut_gate(RegionSlot& slot) noexcept {
  slot.gate.store(0, std::memory_order_seq_cst);
  slot.checked_gate.store(0, std::memory_order_seq_cst);
}

// Called without the mutex. Marks shut gates, too: an opening may be under way.
inline void mark_gates(RegionSlot& slot) noexcept {
  slot.gate.exchange(kMarkedGate, std::memory_order_seq_cst);
  slot.checked_gate.exchange(kMarkedGate, std::memory_order_seq_cst);
}

// The same for the plain gate only, when free hits have ended.
inline void mark_free_gate(RegionSlot& slot) noexcept {
  slot.gate.exchange(kMarkedGate, std::memory_order_seq_cst);
}

}  // namespace hydrant
