// The state machine of the slots that a hunt maps and unmaps (windows.hpp).
#include "tests/stale/hunt/windows.hpp"

#include <sys/mman.h>

namespace hydrant::stale {
namespace {

constexpr int kTries = 16;
// The kernel assigns addresses from the top of a hole: addresses this far below stay unused.
constexpr size_t kHoleBytes = size_t{4} << 30;

}  // namespace

bool Windows::reserve(uint32_t slots, size_t slot_bytes, size_t offset) {
  void* hole =
      mmap(nullptr, kHoleBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hole == MAP_FAILED) return false;
  munmap(hole, kHoleBytes);
  // Leaves a gap at the start: mappings below it may grow.
  const size_t huge = size_t{2} << 20;
  base_ = (reinterpret_cast<uintptr_t>(hole) + offset + 8 * huge) / huge * huge;
  slots_ = slots;
  slot_bytes_ = slot_bytes;
  states_ = std::make_unique<std::atomic<uint64_t>[]>(slots);
  extents_ = std::make_unique<std::atomic<size_t>[]>(slots);
  return true;
}

bool Windows::take(uint32_t slot, State from, State to) {
  uint64_t seen = states_[slot].load();
  return state_of(seen) == from &&
         states_[slot].compare_exchange_strong(seen, word(epoch_of(seen), to));
}

Windows::Claim Windows::claim(Random& random) {
  for (std::atomic<uint32_t>& hint : leaving_) {
    const uint32_t hinted = hint.load();
    if (hinted == 0) continue;
    if (take(hinted - 1, kLeaving, kContested)) return {hinted - 1, true};
  }
  return {claim_free(random), false};
}

uint32_t Windows::claim_free(Random& random) {
  for (int i = 0; i < kTries; ++i) {
    const uint32_t slot = random.below(slots_);
    if (take(slot, kFree, kBusy)) return slot;
  }
  return kNone;
}

void Windows::won(uint32_t slot) {
  states_[slot].store(word(epoch_of(states_[slot].load()) + 1, kBusy));
}

bool Windows::vacated(uint32_t slot) const { return state_of(states_[slot].load()) == kVacated; }

void Windows::give_up(uint32_t slot) {
  states_[slot].store(word(epoch_of(states_[slot].load()) + 1, kFree));
}

Windows::Leave Windows::leave(uint32_t slot) {
  const uint64_t epoch = epoch_of(states_[slot].load());
  states_[slot].store(word(epoch, kLeaving));
  leaving_[next_hint_.fetch_add(1) % leaving_.size()].store(slot + 1);
  return {slot, epoch};
}

bool Windows::is_contested(const Leave& leave) const {
  return states_[leave.slot].load() != word(leave.epoch, kLeaving);
}

void Windows::left(const Leave& leave) {
  uint64_t seen = word(leave.epoch, kLeaving);
  if (states_[leave.slot].compare_exchange_strong(seen, word(leave.epoch + 1, kFree))) return;
  seen = word(leave.epoch, kContested);
  states_[leave.slot].compare_exchange_strong(seen, word(leave.epoch, kVacated));
}

uint32_t Windows::some_busy(Random& random, size_t* extent) const {
  const uint32_t slot = random.below(slots_);
  *extent = extents_[slot].load(std::memory_order_relaxed);
  return state_of(states_[slot].load()) == kBusy && *extent != 0 ? slot : kNone;
}

}  // namespace hydrant::stale
