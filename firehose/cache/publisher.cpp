// Lets hits find a registered region (publisher.hpp): the last phase of a miss.
#include "firehose/cache/publisher.hpp"

namespace hydrant {

bool Publisher::publish(const CacheLock& lock, const Plan& plan, bool cacheable) noexcept {
  const RegionIndex r = plan.region;
  RegionSlot& slot = parts_.store.slot(r);
  slot.len.store(plan.range.len, std::memory_order_release);
  slot.key.store(parts_.store.keys().shown(r), std::memory_order_relaxed);
  slot.denied.store(~bits(plan.access), std::memory_order_relaxed);  // unknown bits too
  // Release: an invalidation without the mutex that sees the address sees the length, too, and one that sees
  // the length sees the changes of the tables before.
  slot.addr.store(plan.range.addr, std::memory_order_release);
  Extensions::note_all_reached(slot);
  const bool room = parts_.tables.prepare(lock, plan.access);
  const bool watched = parts_.watch.is_watched();
  if (plan.range.addr == 0 && watched) cacheable = false;  // see kMarkedGate
  if (!cacheable || !room || !enter(lock, plan)) {
    keep_uncached(lock, plan, cacheable);
    return !cacheable || room;
  }
  if (plan.stream) parts_.extensions.enter(lock, r, plan.extra_bytes, plan.down);
  RegionInfo& info = parts_.store.infos(lock)[r];
  info.state = RegionState::kOpen;
  info.vouched = plan.vouched;
  if (watched && !plan.vouched) {
    info.checked = plan.cover == HYDRANT_COVER_CHECKED;
    info.hooked = plan.cover == HYDRANT_COVER_WATCHED;
    if (info.checked) parts_.checks.note_checked();
  }
  if (!info.prepinned) parts_.victims.add(lock, r);
  has_prepinned_ = has_prepinned_ || info.prepinned;
  slot.tag.store(static_cast<uint32_t>(parts_.handle), std::memory_order_relaxed);
  parts_.gates.open(lock, r);
  return true;
}

// Enters the region in its table. False: another region serves its requests, or has to stay in its place.
bool Publisher::enter(const CacheLock& lock, const Plan& plan) noexcept {
  const bool is_only_class = (parts_.tables.classes(lock) & ~(1u << bits(plan.access))) == 0;
  if (is_only_class && parts_.tables.insert(lock, plan.region)) return true;
  if (parts_.tables.find(lock, plan.range, plan.access) != kNoRegion) return false;
  if (has_prepinned_ && covers_prepinned(lock, plan)) return false;
  replace_covered(lock, plan);
  return parts_.tables.insert(lock, plan.region);
}

// True if a prepinned region of the same rights lies in the plan: it must stay, and then the new one cannot
// enter the table.
bool Publisher::covers_prepinned(const CacheLock& lock, const Plan& plan) const noexcept {
  const auto& infos = parts_.store.infos(lock);
  const PinTable& table = parts_.tables.table(lock, bits(plan.access));
  for (uintptr_t from = plan.range.addr;;) {
    const RegionIndex r = table.first_start(from, plan.range.last());
    if (r == kNoRegion || !plan.range.covers(infos[r].range)) return false;
    if (infos[r].prepinned) return true;
    from = infos[r].range.addr + 1;
  }
}

// Closes the smaller regions that the new one makes superfluous: they get no new hits, and are unpinned when
// they are not held.
void Publisher::replace_covered(const CacheLock& lock, const Plan& plan) noexcept {
  parts_.tables.each_within(lock, plan.range, plan.access, [&](RegionIndex r) {
    Extensions::note_all_reached(parts_.store.slot(r));  // the new one may reach it yet
    parts_.victims.remove(lock, r);
    parts_.retirement.close(lock, r);
    parts_.retirement.add_dead(lock, r);
    ++parts_.totals.of(lock).merges;
  });
}

// Keeps the region for its holders only. Its gate was never open: only holds taken under the mutex count, and
// no fence is needed to sum them.
void Publisher::keep_uncached(const CacheLock& lock, const Plan& plan, bool cacheable) noexcept {
  RegionInfo& info = parts_.store.infos(lock)[plan.region];
  info.state = RegionState::kDead;
  info.closed_epoch = parts_.epoch.now(lock) - 1;
  info.uncached = !cacheable;
  parts_.holds.add_unopened(lock, plan.region);
  parts_.retirement.add_dead(lock, plan.region);
}

}  // namespace hydrant
