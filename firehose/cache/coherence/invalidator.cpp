// Shuts the regions of memory that is released or replaced, and leaves them dead. The monitor calls it; each
// phase under the mutex begins with settle_pending().
#include "firehose/cache/coherence/invalidator.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {
namespace {

constexpr size_t kForgetBatch = 256;

}  // namespace

// If ranges are pending, the same holder has kept the mutex since they were added: it is not waited for
// again.
template <class Work>
bool Invalidator::with_mutex(const Work& work) noexcept {
  if (is_mutex_busy() || !lock_briefly(parts_.mu, parts_.pending_ranges.any())) return false;
  const CacheLock lock(parts_.mu, CacheLock::Adopt::kLocked);
  settle_pending(lock);
  work(lock);
  return true;
}

void Invalidator::close_released(const CacheLock& lock, RegionIndex region) noexcept {
  parts_.retirement.close(lock, region);
  parts_.store.infos(lock)[region].released = true;
  parts_.retirement.add_dead(lock, region);
}

// Under the mutex: closes the open regions that `closes` selects, and poisons every pending registration.
template <class Closes>
void Invalidator::close_where(const CacheLock& lock, const Closes& closes) noexcept {
  auto& infos = parts_.store.infos(lock);
  parts_.pending.poison_all(lock);
  for (RegionIndex r = 1; r <= parts_.store.high(lock); ++r) {
    if (infos[r].state != RegionState::kOpen || !closes(infos[r])) continue;
    close_released(lock, r);
  }
}

void Invalidator::forget_all_vouched(const CacheLock& lock) noexcept {
  invalidation_log_.add({0, kEverything});
  close_where(lock, [](const RegionInfo& info) { return info.vouched; });
}

void Invalidator::forget_all(const CacheLock& lock, bool prepinned_too) noexcept {
  ++parts_.totals.of(lock).invalidations;
  parts_.planner.forget_all(lock);
  invalidation_log_.add({0, kEverything});
  close_where(lock, [&](const RegionInfo& info) { return prepinned_too || !info.prepinned; });
}

void Invalidator::note_forgotten(const CacheLock& lock, MemoryRange range) noexcept {
  ++parts_.totals.of(lock).invalidations;
  parts_.planner.forget(lock, range);
}

bool Invalidator::log_invalidation(const CacheLock& lock, MemoryRange range, bool found) noexcept {
  if (!found) {
    const auto& infos = parts_.store.infos(lock);
    found = !parts_.retirement.dead(lock).each(
        infos, [&](RegionIndex r) { return !infos[r].range.overlaps(range); });
  }
  if (found) invalidation_log_.add(range);
  return found;
}

// Forgets one batch of regions; true if there may be more.
bool Invalidator::forget_some(const CacheLock& lock, MemoryRange range, bool* listed) noexcept {
  RegionIndex found[kForgetBatch];
  bool more = false;
  if (!is_mutant(Mutant::kKeepPending)) parts_.pending.poison(lock, range);
  uint32_t classes = parts_.tables.classes(lock);
  while (classes != 0 && !more) {
    const size_t n = parts_.tables.table(lock, take_lowest(&classes))
                         .collect(range.addr, range.last(), found, kForgetBatch);
    for (size_t i = 0; i < n; ++i) close_released(lock, found[i]);
    more = n != 0;
  }
  if (!*listed) *listed = log_invalidation(lock, range, more);
  return more;
}

void Invalidator::forget_pending(const CacheLock& lock) noexcept {
  const auto forget = [&](MemoryRange range) {
    if (range.len >= kEverything) return forget_all(lock, false);
    note_forgotten(lock, range);
    bool listed = false;
    while (forget_some(lock, range, &listed)) {
    }
  };
  parts_.pending_ranges.take(
      forget, [&] { forget_all_vouched(lock); },
      // The range for which there was no room may be a prepinned one.
      [&] { forget_all(lock, true); });
}

void Invalidator::forget_vouched() noexcept {
  if (with_mutex([&](const CacheLock& lock) { forget_all_vouched(lock); })) return wake_upkeep();
  // Only the mutex's holder knows which regions are vouched for. So all gates are marked; regions that are
  // not vouched for are opened again by their next use.
  parts_.pending_ranges.add_vouched();
  mark_without_lock({0, kEverything});
  Upkeep::own().wake();
}

void Invalidator::forget(MemoryRange range) noexcept {
  bool more = true;
  bool listed = false;
  // Bounded: other threads may register as fast as this forgets. Their registrations are of new memory, or
  // poisoned.
  for (uint64_t rounds = 0; more && rounds < 16 + uint64_t{parts_.store.count()}; ++rounds) {
    const bool locked = with_mutex([&](const CacheLock& lock) {
      if (range.len >= kEverything) {
        forget_all(lock, false);
        more = false;
        return;
      }
      if (rounds == 0) note_forgotten(lock, range);
      more = forget_some(lock, range, &listed);
    });
    if (!locked) return defer(range);
  }
  wake_upkeep();
}

// Wakes upkeep only if a region died: memory that was never pinned is released, too.
void Invalidator::wake_upkeep() const noexcept {
  if (parts_.retirement.may_have_released()) Upkeep::own().wake();
}

void Invalidator::forget_all_after_loss(uint64_t losses) noexcept {
  if (losses_seen_.exchange(losses, std::memory_order_relaxed) != losses) forget({0, kEverything});
}

bool Invalidator::any_pinned(MemoryRange range) noexcept {
  bool found = true;  // maybe
  (void)with_mutex([&](const CacheLock& lock) {
    found = parts_.begun.any_overlap(lock, range) || parts_.tables.any_overlap(lock, range) ||
            parts_.pending.any_overlap(lock, range) ||
            parts_.retirement.has_retiring(lock, range) || parts_.planner.has_refusal(lock, range);
  });
  return found;
}

// Works like defer(). A thread that opens a gate and misses the addition precedes it, and the mark shuts the
// gate that it opens. A thread that finds the addition leaves the gate shut, and the next one finds that free
// hits have ended.
void Invalidator::end_free_hits() noexcept {
  parts_.pending_ranges.add_nothing();
  const RegionIndex used = parts_.store.used();
  for (RegionIndex r = 1; r <= used; ++r) mark_free_gate(parts_.store.slot(r));
}

void Invalidator::defer(MemoryRange range) noexcept {
  parts_.pending_ranges.add(range);
  if (!is_mutant(Mutant::kNoMarks)) mark_without_lock(range);
  Upkeep::own().wake();
}

// Marks the gates of all regions in the range. Called after add(): if this does not find a region, the thread
// that opens it finds the pending range.
void Invalidator::mark_without_lock(MemoryRange range) noexcept {
  const RegionStore& store = parts_.store;
  if (range.len < kEverything &&
      parts_.tables.each_unlocked(range, [&](RegionIndex r) { mark_gates(store.slot(r)); })) {
    return;
  }
  // The mutex's holder is in the middle of a change of the table, or the range has many regions.
  const RegionIndex used = store.used();
  for (RegionIndex r = 1; r <= used; ++r) {
    RegionSlot& slot = store.slot(r);
    const uintptr_t addr = slot.addr.load(std::memory_order_acquire);
    if (addr == kBlankAddr) continue;
    const MemoryRange there{addr, slot.len.load(std::memory_order_relaxed)};
    if (there.len != 0 && there.overlaps(range)) mark_gates(slot);
  }
}

}  // namespace hydrant
