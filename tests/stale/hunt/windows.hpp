// Addresses that a hunt maps and unmaps over and over: one range of the address space, cut into slots, each
// owned by one thread at a time.
//
// A thread that is about to unmap its slot says so first. Another may then contest the slot: it tries to map
// something there, without replacing anything, until the kernel lets it. So the new mapping may come before
// the old owner's munmap has returned, which is the moment that a cache must survive.
//
//     free --claim--> busy --leave--> leaving --left--> free
//                      ^                 |
//                      |               claim
//                      |                 v
//                      +----won---- contested --left--> contested, vacated --lost--> free
//
// Ownership: busy: whoever claimed. leaving: the leaver, who touches nothing of it but for the system
// call that releases it. contested: nobody owns the memory until a mapping that replaces nothing
// succeeded; the kernel decides. An epoch in the state's word keeps a leaver that is late from changing
// a later owner's state.
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
    bool contested = false;  // its owner may not have unmapped it yet
  };
  struct Leave {
    uint32_t slot = kNone;
    uint64_t epoch = 0;
  };

  // Looks for unused addresses; nothing is mapped there. Windows of different offsets, a GiB apart,
  // keep out of each other's way. False without address space.
  bool reserve(uint32_t slots, size_t slot_bytes, size_t offset);

  uint32_t slots() const { return slots_; }
  size_t slot_bytes() const { return slot_bytes_; }
  uintptr_t addr(uint32_t slot) const { return base_ + slot * slot_bytes_; }

  // A slot that somebody is leaving, or a free one; kNone after some tries.
  Claim claim(Random& random);
  // A free one only.
  uint32_t claim_free(Random& random);
  // The claimant mapped a contested slot: it is busy.
  void won(uint32_t slot);
  // True when the leaver of a contested slot has returned: if mapping fails now, then for another reason.
  bool vacated(uint32_t slot) const;
  // A slot that is claimed, and contains nothing, is free again. Contested ones: only when vacated.
  void give_up(uint32_t slot);

  // Around the release of a busy slot's memory.
  Leave leave(uint32_t slot);
  void left(const Leave& leave);
  // Whether somebody waits for the slot.
  bool is_contested(const Leave& leave) const;

  // How much of a busy slot is mapped, for bystanders.
  void set_extent(uint32_t slot, size_t bytes) {
    extents_[slot].store(bytes, std::memory_order_relaxed);
  }
  // Any slot that is busy now, and its extent; kNone if the first look finds none. Both may be out of
  // date at once.
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
  // Sequentially consistent: they order nothing for the cache under test that mapping did not order already.
  std::unique_ptr<std::atomic<uint64_t>[]> states_;
  std::unique_ptr<std::atomic<size_t>[]> extents_;  // relaxed, hints
  // Slots that are being left now; hints.
  std::array<std::atomic<uint32_t>, 8> leaving_{};
  std::atomic<uint32_t> next_hint_{0};
};

}  // namespace hydrant::stale
