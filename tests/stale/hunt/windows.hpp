// Addresses that a hunt maps and unmaps repeatedly: a range of the address space, divided into slots, each
// owned by one thread at a time.
//
// A thread announces that it is about to unmap its slot. Another thread may then contest the slot: it tries
// to map memory there, without replacing anything, until the kernel permits it. So the new mapping may be
// made before the old owner's munmap has returned, which is the moment that a cache must survive.
//
//     free --claim--> busy --leave--> leaving --left--> free
//                      ^                 |
//                      |               claim
//                      |                 v
//                      +----won---- contested --left--> contested, vacated --lost--> free
//
// Ownership. busy: the claimant. leaving: the leaver, which only makes the system call that releases the
// slot. contested: no thread, until a mapping that replaces nothing succeeds; the kernel decides. An epoch in
// the state's word prevents a late leaver from changing a later owner's state.
#pragma once

#include "tests/stale/hunt/random.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::stale {

class Windows {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Claim {
    uint32_t slot = kNone;
    bool contested = false;  // the previous owner may not have unmapped it yet
  };
  struct Leave {
    uint32_t slot = kNone;
    uint64_t epoch = 0;
  };

  // Chooses unused addresses without mapping them. Windows with different offsets, a GiB apart, do not
  // overlap. False without address space.
  bool reserve(uint32_t slots, size_t slot_bytes, size_t offset);

  uint32_t slots() const { return slots_; }
  size_t slot_bytes() const { return slot_bytes_; }
  uintptr_t addr(uint32_t slot) const { return base_ + slot * slot_bytes_; }

  // Claims a slot that its owner is leaving, or a free one; kNone after several tries.
  Claim claim(Random& random);
  // Claims a free slot only.
  uint32_t claim_free(Random& random);
  // Reports that the claimant has mapped a contested slot, which is now busy.
  void won(uint32_t slot);
  // True if the leaver of a contested slot has returned: if mapping fails now, it has another reason.
  bool vacated(uint32_t slot) const;
  // Frees a claimed slot without a mapping. Contested slots: only when vacated.
  void give_up(uint32_t slot);

  // Call leave() before and left() after the release of a busy slot's memory.
  Leave leave(uint32_t slot);
  void left(const Leave& leave);
  // Whether a contender waits for the slot.
  bool is_contested(const Leave& leave) const;

  // Records how much of a busy slot is mapped, for bystanders.
  void set_extent(uint32_t slot, size_t bytes) {
    extents_[slot].store(bytes, std::memory_order_relaxed);
  }
  // Some busy slot and its extent; kNone if a single try finds none. Both may be outdated at once.
  uint32_t some_busy(Random& random, size_t* extent) const;

 private:
  enum State : uint64_t { kFree, kBusy, kLeaving, kContested, kVacated };
  static constexpr unsigned kStateBits = 3;
  static constexpr uint64_t kStateMask = (1u << kStateBits) - 1;

  static uint64_t word(uint64_t epoch, State state) { return epoch << kStateBits | state; }
  static State state_of(uint64_t word) { return static_cast<State>(word & kStateMask); }
  static uint64_t epoch_of(uint64_t word) { return word >> kStateBits; }
  bool take(uint32_t slot, State from, State to);

  uintptr_t base_ = 0;
  uint32_t slots_ = 0;
  size_t slot_bytes_ = 0;
  // Sequentially consistent: they add no order for the cache under test beyond that of the mapping calls.
  std::unique_ptr<std::atomic<uint64_t>[]> states_;
  std::unique_ptr<std::atomic<size_t>[]> extents_;  // relaxed, hints
  // Slots that are being left; hints.
  std::array<std::atomic<uint32_t>, 8> leaving_{};
  std::atomic<uint32_t> next_hint_{0};
};

}  // namespace hydrant::stale
