// Maps addresses to reservations in a radix tree. free() and the C functions look pointers up in it.
#include "firehose/watch/arena/address_reservation.hpp"

#include "firehose/base/raw_memory.hpp"

namespace hydrant::arena {

AddressMap& address_map() noexcept {
  static constinit AddressMap map;
  return map;
}

AddressMap::Leaf* AddressMap::leaf_of(uintptr_t block) noexcept {
  std::atomic<Leaf*>& root = leaves_[block >> kBits];
  Leaf* leaf = root.load(std::memory_order_acquire);
  if (leaf != nullptr) return leaf;
  // Fresh pages are zero, and so is an empty leaf.
  auto* fresh = static_cast<Leaf*>(raw_map(sizeof(Leaf)));
  if (fresh == nullptr) return nullptr;
  // Another store may have been faster; then all use its leaf.
  if (root.compare_exchange_strong(leaf, fresh, std::memory_order_acq_rel)) return fresh;
  raw_unmap(fresh, sizeof(Leaf));
  return leaf;
}

bool AddressMap::add(AddressReservation* reservation) noexcept {
  const uintptr_t first = reservation->addr >> kBlockShift;
  const uintptr_t end = reservation->end() >> kBlockShift;
  if (end >> (2 * kBits) != 0) return false;
  for (uintptr_t block = first; block < end; block = (block | (kSlots - 1)) + 1) {
    if (leaf_of(block) == nullptr) return false;
  }
  for (uintptr_t block = first; block < end; ++block) {
    const auto& slot = leaf_of(block)->at[block & (kSlots - 1)];
    if (slot.load(std::memory_order_relaxed) != nullptr) return false;
  }
  for (uintptr_t block = first; block < end; ++block) {
    leaf_of(block)->at[block & (kSlots - 1)].store(reservation, std::memory_order_release);
  }
  return true;
}

}  // namespace hydrant::arena
