// A reservation: a contiguous piece of address space, aligned to huge pages, from which an arena hands out
// pages. Also the map from an address to its reservation.
#pragma once

#include "firehose/base/file_identity.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

class PageStore;
struct Span;

constexpr size_t kPageBytes = 4096;
constexpr unsigned kBlockShift =
    21;  // a huge page, and the unit in which memory returns to the kernel
constexpr size_t kBlockBytes = size_t{1} << kBlockShift;
constexpr size_t kBlockPages = kBlockBytes / kPageBytes;

// Requires: granule is a power of two and value <= SIZE_MAX - granule.
constexpr size_t round_up(size_t value, size_t granule) noexcept {
  return (value + granule - 1) & ~(granule - 1);
}

// A huge page of a reservation.
struct Block {
  uint16_t used_pages;  // 0 to kBlockPages
  bool touched;         // used since it was last emptied: may hold memory
  bool recalled;        // not in use, and recalled from caches
};

// Lives as long as the process. Guarded by its store's lock, except `pages`, which belongs to the heap. addr,
// bytes, store and file are constant; the child of a fork sets `lost`.
struct AddressReservation {
  uintptr_t addr;
  size_t bytes;
  size_t handed_bytes;  // length of the prefix that the store has handed out so far
  PageStore* store;
  int file;                  // -1: private memory
  FileIdentity identity;     // of `file`
  bool lost;                 // the parent's shared memory, not mapped here
  AddressReservation* next;  // in its store
  Block* blocks;             // bytes / kBlockBytes of them
  Span** pages;              // bytes / kPageBytes of them; unused under jemalloc

  uintptr_t end() const noexcept { return addr + bytes; }
  Block& block_at(uintptr_t a) const noexcept { return blocks[(a - addr) >> kBlockShift]; }
};

// Maps every address below 2^47 to its reservation, in two levels of 13 bits over 2-MiB blocks. Threads:
// find() from any thread without a lock; add() under a store's lock, concurrently for different stores.
class AddressMap {
 public:
  constexpr AddressMap() noexcept = default;

  AddressReservation* find(const void* p) const noexcept {
    const uintptr_t block = reinterpret_cast<uintptr_t>(p) >> kBlockShift;
    if (block >> (2 * kBits) != 0) return nullptr;
    // Pairs with the release in add(): the leaf is zero or has the entries of add().
    const Leaf* leaf = leaves_[block >> kBits].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr
                           : leaf->at[block & (kSlots - 1)].load(std::memory_order_acquire);
  }
  // False, without any change, if memory ran out or a reservation that was lost in a fork is at these
  // addresses. Entries are never removed.
  [[nodiscard]] bool add(AddressReservation* reservation) noexcept;

 private:
  static constexpr unsigned kBits = 13;
  static constexpr size_t kSlots = size_t{1} << kBits;
  struct Leaf {
    std::atomic<AddressReservation*> at[kSlots];
  };
  Leaf* leaf_of(uintptr_t block) noexcept;

  std::atomic<Leaf*> leaves_[kSlots] = {};
};

// The map of this library.
AddressMap& address_map() noexcept;

}  // namespace hydrant::arena
