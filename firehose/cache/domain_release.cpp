// Carries out releases that leave work to do, invalidations and flushes. Each is one phase under the mutex
// that retires regions; the unpinner follows without it.
#include "firehose/cache/domain_release.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/pin/failure_texts.hpp"

namespace hydrant {
namespace {

constexpr size_t kInvalidateBatch = 512;
constexpr size_t kFlushBatch = 64;  // regions whose holds are summed at once
constexpr size_t kDrainAtOnce = 64;
// How long an invalidation waits for unpins in other threads.
constexpr uint64_t kUnpinPatienceNs = 10'000'000'000;

}  // namespace

Status Releases::release(const RegionSlot* slot, ThreadDomain* thread) noexcept {
  const RegionIndex r = parts_.store.index_of(slot);
  if (thread != nullptr && slot->tag.load(std::memory_order_relaxed) == parts_.threads.handle()) {
    drop_hold(thread->counts[r]);
    return Status::kOk;
  }
  const CancellationDisabled guard;
  if (thread != nullptr) ThreadCounters::add(thread->counters.slow_releases);
  RegionQueue retired;
  {
    const CachePhase lock(parts_);
    HoldCounts& holds = parts_.holds;
    const RegionInfo& info = parts_.store.infos(lock)[r];
    switch (info.state) {
      case RegionState::kOpen: (void)holds.drop(lock, thread, r); return Status::kOk;
      case RegionState::kTombstone: return fail_pin_of_parent();
      case RegionState::kDead:
        if (!info.is_unopened && info.closed_epoch == parts_.epoch.now(lock)) {
          parts_.epoch.fence(lock);
        }
        // Shut: the sum only falls, so 0 means that this hold was released before.
        if ((info.is_unopened ? holds.sum_of_unopened(lock, r) : holds.settled(lock, r)) == 0) {
          return fail_pin_released();
        }
        if (holds.drop(lock, info.is_unopened ? nullptr : thread, r) != 0) return Status::kOk;
        parts_.retirement.remove_dead(lock, r);
        parts_.retirement.retire(lock, r, &retired);
        break;
      default: return fail_pin_released();
    }
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  return Status::kOk;
}

void Releases::close(const CacheLock& lock, RegionIndex region, RegionQueue* closed) noexcept {
  parts_.victims.remove(lock, region);
  parts_.retirement.close(lock, region);
  closed->push(parts_.store.infos(lock), region);
}

// Searches all regions, because the tables return the prepinned ones first each time. True if any was closed.
bool Releases::close_beside_prepinned(const CacheLock& lock, MemoryRange range,
                                      RegionQueue* closed) noexcept {
  const auto& infos = parts_.store.infos(lock);
  for (RegionIndex r = 1; r <= parts_.store.high(lock) && closed->size() < kInvalidateBatch; ++r) {
    const RegionInfo& info = infos[r];
    if (info.state != RegionState::kOpen || info.prepinned || !info.range.overlaps(range)) continue;
    close(lock, r, closed);
  }
  return !closed->empty();
}

// Closes up to kInvalidateBatch regions of the range; true if there may be more. Prepinned memory is the
// client's: it stays registered, and is hit, until the domain ends. *unpinning: another thread is unpinning
// part of the range.
bool Releases::invalidate_some(MemoryRange range, bool first, bool* unpinning) noexcept {
  RegionIndex found[kInvalidateBatch];
  RegionQueue retired;
  bool more = false;
  {
    const CachePhase lock(parts_);
    const auto& infos = parts_.store.infos(lock);
    if (first) parts_.invalidator.note_forgotten(lock, range);
    // For a registrar that must unpin before the release, the client keeps the memory until no registration
    // is pending there, so a pending one is valid. Poisoning it would spoil the attempt that the client waits
    // for.
    if (!parts_.traits.unpin_before_release) parts_.pending.poison(lock, range);
    RegionQueue closed;
    bool kept = false;
    uint32_t classes = parts_.tables.classes(lock);
    while (classes != 0 && !more) {
      const size_t n = parts_.tables.table(lock, take_lowest(&classes))
                           .collect(range.addr, range.last(), found, kInvalidateBatch);
      for (size_t i = 0; i < n; ++i) {
        if (infos[found[i]].prepinned) {
          kept = true;
        } else {
          close(lock, found[i], &closed);
        }
      }
      // In region mode one pass may miss regions that begin before the range: it finds only the last of them.
      more = !closed.empty();
    }
    // Prepinned regions stay, and may have filled the whole batch.
    if (kept && !more) more = close_beside_prepinned(lock, range, &closed);
    // Regions that died when they were merged may overlap the range, too.
    parts_.retirement.take_dead(lock, range, &closed);
    if ((first || more) && !closed.empty()) {
      (void)parts_.invalidator.log_invalidation(lock, range, true);
    }
    *unpinning = parts_.unpins.any_overlap(lock, range);
    parts_.retirement.settle(lock, &closed, &retired);
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  return more;
}

// Works in batches, so that other threads get the mutex in between. A registration made meanwhile is of new
// memory or is poisoned. The bound is for a client that goes on pinning what it invalidates.
Status Releases::invalidate(MemoryRange range) noexcept {
  bool unpinning = false;
  bool more = invalidate_some(range, true, &unpinning);
  for (uint64_t rounds = 16 + parts_.store.count(); more && rounds > 0; --rounds) {
    more = invalidate_some(range, false, &unpinning);
  }
  // Runs keep_up() later: this may have been the last region.
  if (parts_.config.watch == HYDRANT_WATCH_AUTO) Upkeep::own().wake();
  if (parts_.traits.unpin_before_release) return finish_unpins(range);
  return unpinning && parts_.traits.wants_unmap_reports ? wait_for_unpins(range) : Status::kOk;
}

// For registrars that undo pins by address: other memory may be there when the caller goes on. Their
// functions call no domain, so this waits for no thread that waits for this one.
Status Releases::wait_for_unpins(MemoryRange range) noexcept {
  const uint64_t deadline_ns = now_ns() + kUnpinPatienceNs;
  const CachePhase lock(parts_);
  while (parts_.unpins.any_overlap(lock, range)) {
    if (parts_.unpins.wait(lock, deadline_ns) || now_ns() < deadline_ns) continue;
    return fail(
        Status::kNotReady,
        "domain %s: another thread has been unpinning part of [%#zx, +%zu) for %llu s, and "
        "registrar %s undoes pins by address: invalidate again before the memory is released",
        parts_.config.name, static_cast<size_t>(range.addr), range.len,
        static_cast<unsigned long long>(kUnpinPatienceNs / 1'000'000'000u), parts_.traits.name);
  }
  return Status::kOk;
}

// Unpins regions that were dead before, or are no longer held; then checks whether any registration is left.
// A registration can outlive the call if it is held, being made, being undone, or made again by another call.
Status Releases::finish_unpins(MemoryRange range) noexcept {
  RegionQueue retired;
  {
    const CachePhase lock(parts_);
    parts_.retirement.drain(lock, range, &retired);
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  {
    const CachePhase lock(parts_);
    const auto& infos = parts_.store.infos(lock);
    bool left = parts_.begun.any_overlap(lock, range) || parts_.pending.any_overlap(lock, range) ||
                parts_.retirement.has_retiring(lock, range);
    // A pin that had begun before may have registered since. All regions are searched, because the tables
    // return the prepinned ones first.
    const RegionIndex high =
        parts_.tables.any_overlap(lock, range) ? parts_.store.high(lock) : kNoRegion;
    for (RegionIndex r = 1; r <= high && !left; ++r) {
      const RegionInfo& info = infos[r];
      left = info.state == RegionState::kOpen && !info.prepinned && info.range.overlaps(range);
    }
    if (!left) return Status::kOk;
  }
  return fail(
      Status::kNotReady,
      "domain %s: part of [%#zx, +%zu) is still registered, because it is held, or is being "
      "pinned or unpinned by another thread, or waits in hydrant_pin_async(), and registrar %s "
      "must unpin before the memory is released: release the pins, poll, and invalidate again "
      "until that returns OK",
      parts_.config.name, static_cast<size_t>(range.addr), range.len, parts_.traits.name);
}

void Releases::flush() noexcept {
  RegionQueue retired;
  {
    const CachePhase lock(parts_);
    parts_.planner.forget_refusals(lock);
    auto& infos = parts_.store.infos(lock);
    RegionQueue shut;
    for (RegionIndex r = 1; r <= parts_.store.high(lock); ++r) {
      if (!parts_.evictor.evictable(lock, r)) continue;
      parts_.gates.shut(lock, r);
      shut.push(infos, r);
    }
    if (!shut.empty()) parts_.epoch.fence(lock);
    while (!shut.empty()) {
      RegionIndex batch[kFlushBatch];
      uint32_t sums[kFlushBatch];
      size_t n = 0;
      while (n < kFlushBatch && !shut.empty()) batch[n++] = shut.pop(infos);
      parts_.holds.settled(lock, batch, n, sums);
      for (size_t i = 0; i < n; ++i) {
        if (sums[i] != 0) {
          parts_.evictor.reopen(lock, batch[i]);
          continue;
        }
        parts_.tables.erase(lock, batch[i]);
        parts_.retirement.retire(lock, batch[i], &retired);
      }
    }
    parts_.retirement.drain(lock, SIZE_MAX, &retired);
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  parts_.watch.unwatch_unused();
}

void Releases::drain_some_dead(uint64_t deadline_ns) noexcept {
  if (looks_idle()) return;
  RegionQueue retired;
  {
    const CachePhase lock(parts_);
    parts_.retirement.drain(lock, kDrainAtOnce, &retired);
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  // Unpins the rest of the released memory; bounded, because other threads may go on releasing.
  size_t batches = parts_.store.count() / kDrainAtOnce;
  while (batches-- > 0 && now_ns() < deadline_ns && drain_released()) {
  }
}

bool Releases::drain_released() noexcept {
  if (!parts_.retirement.may_have_released() && !parts_.invalidator.has_pending()) return false;
  RegionQueue retired;
  bool more = false;
  {
    const CachePhase lock(parts_);
    more = parts_.retirement.drain_released(lock, &retired);
  }
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  return more;
}

bool Releases::keep_up() noexcept {
  if (drain_released()) return true;
  bool caches_nothing = false;
  {
    const CachePhase lock(parts_);
    caches_nothing = parts_.budget.regions(lock) == 0;
    if (caches_nothing) parts_.planner.forget_refusals(lock);
  }
  if (caches_nothing) parts_.watch.unwatch_idle();
  return false;
}

}  // namespace hydrant
