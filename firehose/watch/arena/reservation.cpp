#include "firehose/watch/arena/reservation.hpp"

#include "firehose/watch/arena/system_calls.hpp"

namespace hydrant::arena {

AddressMap& address_map() noexcept {
  static constinit AddressMap map;
  return map;
}

AddressMap::Leaf* AddressMap::leaf_of(uintptr_t block) noexcept {
  std::atomic<Leaf*>& root = leaves_[block >> kBits];
  Leaf* leaf = root.load(std::memory_order_acquire);
  if (leaf != nullptr) return leaf;
  const uintptr_t made = sys_map(0, sizeof(Leaf), PROT_READ | PROT_WRITE, 0, -1);
  if (made == 0) return nullptr;
  // Fresh pages are zero, which is what an empty leaf is.
  auto* fresh = reinterpret_cast<Leaf*>(made);
  // Another store may have been faster; then its leaf is everybody's.
  if (root.compare_exchange_strong(leaf, fresh, std::memory_order_acq_rel)) return fresh;
  (void)sys_unmap(made, sizeof(Leaf));
  return leaf;
}

bool AddressMap::add(Reservation* reservation) noexcept {
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
