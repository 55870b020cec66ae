// What the monitor tells a domain, and what the domain asks of it.
//
// forget() and its kin run in the monitor's reader, or under an allocator's locks: they shut regions
// and leave them dead, without a fence, a deregistration or an allocation; the next poll or slow call
// of the client drains them. A look into the cache that follows in the order of events finds a shut
// gate.
#include "firehose/borrowed_lock.hpp"
#include "firehose/domain.hpp"
#include "firehose/gate.hpp"
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"

#include <bit>

namespace hydrant {
namespace {

constexpr size_t kForgetBatch = 256;
// How long a pin waits for others' releases to end before it does without the cache.
constexpr uint64_t kQuietNs = 5'000'000;
// More than any real range: everything.
constexpr size_t kEverything = size_t{1} << 62;

}  // namespace

Status Domain::start_watching() noexcept {
  monitor_ = find_monitor();
  hydrant_monitor_client_t client{};
  client.context = this;
  client.forget = [](void* self, uintptr_t addr, size_t len) {
    static_cast<Domain*>(self)->forget({addr, len});
  };
  client.forget_vouched = [](void* self) { static_cast<Domain*>(self)->forget_vouched(); };
  client.pinned = [](void* self, uintptr_t addr, size_t len) {
    return static_cast<Domain*>(self)->any_pinned({addr, len}) ? 1 : 0;
  };
  subscription_ = monitor_->subscribe(&client);
  if (subscription_ >= 0) return Status::kOk;
  monitor_ = nullptr;
  return fail(Status::kResource, "the process's monitor tells 64 domains already; destroy one");
}

void Domain::stop_watching() noexcept {
  if (monitor_ != nullptr) monitor_->unsubscribe(subscription_);
}

void Domain::begin_in_step() noexcept {
  if (monitor_ != nullptr && config_.watch == HYDRANT_WATCH_AUTO) monitor_->sync();
}

Status Domain::coverage(MemoryRange range, uint32_t* out) noexcept {
  const Status status = check_range(range);
  if (status != Status::kOk) return status;
  const MemoryRange pages = round_out(range, config_.granule_bytes);
  {
    MutexLock lock(mu_);
    *out = HYDRANT_COVERAGE_VOUCHED;
    if (vouched_.covers(pages)) return Status::kOk;
  }
  *out = HYDRANT_COVERAGE_CLIENT;
  if (config_.watch == HYDRANT_WATCH_CLIENT) return Status::kOk;
  const uint32_t flags = config_.watch == HYDRANT_WATCH_NONE ? HYDRANT_COVER_ONLY_ARENAS : 0;
  // What the caller released before may be half told, and this may be other memory at its addresses.
  if (flags == 0) (void)monitor_->quiet(kQuietNs);
  switch (monitor_->cover(pages.addr, pages.len, flags)) {
    case HYDRANT_COVER_CHECKED: *out = HYDRANT_COVERAGE_CHECKED; break;
    case HYDRANT_COVER_WATCHED: *out = HYDRANT_COVERAGE_WATCHED; break;
    case HYDRANT_COVER_ARENA: *out = HYDRANT_COVERAGE_ARENA; break;
    default: *out = HYDRANT_COVERAGE_NONE; break;
  }
  return Status::kOk;
}

// True when no release was under way at some moment since the call began; the answer is kept in `want`.
bool Domain::become_quiet(Want& want) noexcept {
  if (want.quiet || want.restless) return want.quiet;
  want.quiet = is_mutant(Mutant::kNoCheckedLookup) || monitor_->quiet(with_patience(kQuietNs)) == 0;
  want.restless = !want.quiet;
  return want.quiet;
}

// The hit of memory whose acquisition nobody reports. The caller's memory is its own since before this
// call; a release of what these addresses were before had then begun, so that it is under way, or was
// read and told.
bool Domain::look_checked(Want& want, const RegionSlot** out) noexcept {
  if (checked_regions_.load(std::memory_order_relaxed) == 0) return false;
  const uint32_t need = bits(want.need);
  uint32_t classes = classes_.load(std::memory_order_acquire);
  while (classes != 0) {
    const auto c = static_cast<uint32_t>(std::countr_zero(classes));
    classes &= classes - 1;
    if ((c & need) != need) continue;
    const RegionIndex r = tables_[c]->find(want.range.addr);
    if (r == kNoRegion || r >= slot_count_) continue;
    const RegionSlot& s = slot(r);
    // Asked only for what would be a hit: the slot is looked at again afterwards.
    if (want.range.addr < s.addr.load(std::memory_order_relaxed) ||
        want.range.last() >= s.checked_gate.load(std::memory_order_relaxed)) {
      continue;
    }
    if (!become_quiet(want)) return false;
    if (!hold_if_open(s, s.checked_gate, want.thread->counts[r], want.range.addr, want.range.last(),
                      need)) {
      continue;
    }
    ThreadCounters::add(want.thread->counters.refills);
    note_reached(slot(r), want.pages);
    *out = &s;
    return true;
  }
  return false;
}

// Asks who watches the range of a registration that is pending, before it begins. False: not all of what was
// planned is watched, or not as well as what was asked for.
bool Domain::cover(const Want& want, Plan* plan) noexcept {
  if (monitor_ == nullptr || plan->vouched) return true;
  const uint32_t flags = config_.watch == HYDRANT_WATCH_NONE ? HYDRANT_COVER_ONLY_ARENAS : 0;
  plan->cover = want.restless ? HYDRANT_COVER_NONE
                              : monitor_->cover(plan->range.addr, plan->range.len, flags);
  if (plan->cover == HYDRANT_COVER_NONE) return plan->range == want.pages;
  // Nor may more memory cost the request a hit without checks.
  if (plan->cover == HYDRANT_COVER_CHECKED && plan->range != want.pages) {
    if (plan->request_vouched) return false;
    const uint32_t alone = monitor_->cover(want.pages.addr, want.pages.len, flags);
    if (alone == HYDRANT_COVER_ARENA || alone == HYDRANT_COVER_WATCHED) return false;
  }
  monitor_->note_pinned(plan->range.addr, plan->range.len);
  return true;
}

// Asked when the registration is there and not yet published. What changed since cover() is under way, or
// forget() has poisoned the region.
bool Domain::may_be_cached(const Plan& plan) noexcept {
  if (config_.watch == HYDRANT_WATCH_CLIENT || plan.vouched) return true;
  if (plan.cover == HYDRANT_COVER_NONE) return false;
  if (plan.cover == HYDRANT_COVER_ARENA || is_mutant(Mutant::kNoPublishCheck)) return true;
  return monitor_->quiet(with_patience(kQuietNs)) == 0;
}

void Domain::unlist_locked(RegionIndex region) {
  if (!infos_[region].listed) return;
  infos_[region].listed = false;
  policy_->erase(region);
}

// Out of its table and shut, for good. The policy may go on naming it until it is retired.
void Domain::doom_locked(RegionIndex region) {
  RegionInfo& info = infos_[region];
  tables_[bits(info.access)]->erase(info.range, region);
  shut_locked(region);
  slot(region).tag.store(0, std::memory_order_release);
  info.state = RegionState::kDead;
}

template <class Doomed>
void Domain::doom_where(const Doomed& doomed) {
  for (RegionIndex r = pending_.front(); r != kNoRegion; r = infos_[r].next) {
    infos_[r].poisoned = true;
  }
  for (RegionIndex r = 1; r <= high_; ++r) {
    if (infos_[r].state != RegionState::kOpen || !doomed(infos_[r])) continue;
    doom_locked(r);
    dead_.add(infos_, r);
  }
  dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
}

// Lists a range whose memory goes away, if something is or was registered there: peers may have it.
bool Domain::note_gone_locked(MemoryRange range, bool found) {
  const RegionQueue* const queues[] = {&dead_.fresh(), &dead_.held()};
  for (const RegionQueue* queue : queues) {
    for (RegionIndex r = queue->front(); !found && r != kNoRegion; r = infos_[r].next) {
      found = infos_[r].range.overlaps(range);
    }
  }
  if (found) gone_.add(range);
  return found;
}

void Domain::forget_vouched() noexcept {
  BorrowedLock lock(mu_);
  gone_.add({0, kEverything});
  doom_where([](const RegionInfo& info) { return info.vouched; });
}

void Domain::forget(MemoryRange range) noexcept {
  if (range.len >= kEverything) {
    BorrowedLock lock(mu_);
    ++totals_.invalidations;
    refusals_.clear();
    streams_.clear();
    gone_.add({0, kEverything});
    doom_where([](const RegionInfo& info) { return !info.prepinned; });
    return;
  }
  bool more = true;
  bool listed = false;
  // Bounded: others may register as fast as this forgets. What they register is new, or is poisoned.
  for (uint64_t rounds = 0; more && rounds < 16 + uint64_t{slot_count_}; ++rounds) {
    RegionIndex found[kForgetBatch];
    more = false;
    BorrowedLock lock(mu_);
    if (rounds == 0) {
      ++totals_.invalidations;
      refusals_.forget(round_out(range, config_.granule_bytes));
      streams_.forget_borders(range);
    }
    for (RegionIndex r = pending_.front(); r != kNoRegion; r = infos_[r].next) {
      if (infos_[r].range.overlaps(range) && !is_mutant(Mutant::kKeepPending)) {
        infos_[r].poisoned = true;
      }
    }
    for (uint32_t c = 0; c < 16 && !more; ++c) {
      if ((classes_.load(std::memory_order_relaxed) >> c & 1) == 0) continue;
      const size_t n = tables_[c]->collect(range.addr, range.last(), found, kForgetBatch);
      for (size_t i = 0; i < n; ++i) {
        doom_locked(found[i]);
        dead_.add(infos_, found[i]);
      }
      more = n != 0;
    }
    if (!listed) listed = note_gone_locked(range, more);
    dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
  }
}

bool Domain::any_pinned(MemoryRange range) noexcept {
  BorrowedLock lock(mu_);
  for (uint32_t c = 0; c < 16; ++c) {
    if ((classes_.load(std::memory_order_relaxed) >> c & 1) == 0) continue;
    if (tables_[c]->any_overlap(range.addr, range.last()) != kNoRegion) return true;
  }
  const RegionQueue* const queues[] = {&pending_, &dead_.fresh(), &dead_.held()};
  for (const RegionQueue* queue : queues) {
    for (RegionIndex r = queue->front(); r != kNoRegion; r = infos_[r].next) {
      if (infos_[r].range.overlaps(range)) return true;
    }
  }
  return false;
}

}  // namespace hydrant
