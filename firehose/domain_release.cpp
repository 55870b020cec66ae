// Everything that takes holds or regions away: slow releases, invalidation, flush; and waiting for budget.
#include "firehose/domain.hpp"
#include "firehose/gate.hpp"

#include <algorithm>
#include <ctime>

namespace hydrant {
namespace {

constexpr size_t kInvalidateBatch = 512;
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 1'000'000;
// Whoever waits for budget looks through the regions under the lock: it rests so many times as long as
// it looked.
constexpr uint64_t kRestPerTry = 16;
constexpr uint64_t kLongestRestNs = 20'000'000;

void pause_ns(uint64_t ns) {
  timespec ts{0, static_cast<long>(ns)};
  nanosleep(&ts, nullptr);
}

}  // namespace

Status Domain::release(const RegionSlot* s) noexcept {
  if ((reinterpret_cast<uintptr_t>(s) & (sizeof(RegionSlot) - 1)) != 0) {
    return fail(Status::kBadArg, "not a pin: %p", static_cast<const void*>(s));
  }
  ThreadDomain* thread = enter();
  if (is_span(s)) return release_span(s, thread);
  const RegionIndex r = index_of(s);
  if (thread != nullptr && s->tag.load(std::memory_order_relaxed) == handle_) {
    drop_hold(thread->counts[r]);
    return Status::kOk;
  }
  if (thread != nullptr) ThreadCounters::add(thread->counters.slow_releases);
  RegionQueue retired;
  {
    MutexLock lock(mu_);
    RegionInfo& info = infos_[r];
    switch (info.state) {
      case RegionState::kOpen: drop_locked(thread, r); return Status::kOk;
      case RegionState::kTombstone:
        return fail(Status::kNotInit, "this pin was taken before the fork that made this process");
      case RegionState::kDead:
        if (info.closed_epoch == epoch_) fence_locked();
        // Shut: the sum only falls, so 0 means that this hold was released before.
        if (settled_holds_locked(r) == 0) {
          return fail(Status::kBadArg, "this pin is not live: it was released before");
        }
        if (drop_locked(thread, r) != 0) return Status::kOk;
        dead_.remove(infos_, r);
        dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
        retire_locked(r, &retired);
        break;
      default: return fail(Status::kBadArg, "this pin is not live: its region is gone");
    }
  }
  unpin_retired(&retired, false);
  return Status::kOk;
}

// Kills up to kInvalidateBatch regions of the range; true if there may be more.
bool Domain::invalidate_some(MemoryRange range, bool first) noexcept {
  RegionIndex found[kInvalidateBatch];
  RegionQueue retired;
  bool more = false;
  {
    MutexLock lock(mu_);
    if (first) {
      ++totals_.invalidations;
      refusals_.forget(round_out(range, config_.granule_bytes));
      streams_.forget_borders(range);
    }
    for (RegionIndex r = pending_.front(); r != kNoRegion; r = infos_[r].next) {
      if (infos_[r].range.overlaps(range)) infos_[r].poisoned = true;
    }
    RegionQueue killed;
    for (uint32_t c = 0; c < 16 && !more; ++c) {
      if ((classes_.load(std::memory_order_relaxed) >> c & 1) == 0) continue;
      const size_t n = tables_[c]->collect(range.addr, range.last(), found, kInvalidateBatch);
      for (size_t i = 0; i < n; ++i) {
        kill_locked(found[i]);
        killed.push(infos_, found[i]);
      }
      // In region mode one pass may miss ranges that begin before the last one that does.
      more = n != 0;
    }
    if (first || more) note_gone_locked(range, more);
    settle_locked(&killed, &retired);
  }
  unpin_retired(&retired, false);
  return more;
}

Status Domain::invalidate(MemoryRange range) noexcept {
  // "Everything" is a good request here: no region reaches into what is cut off.
  const uintptr_t most = UINTPTR_MAX - 2 * config_.granule_bytes;
  if (range.valid() && range.last() > most && range.addr <= most) range.len = most - range.addr + 1;
  const Status status = check_range(range);
  if (status != Status::kOk) return status;
  // In pieces, so that others get the mutex in between. What is registered meanwhile is new memory's or is
  // poisoned; a client that goes on pinning what it invalidates meets the bound.
  bool more = invalidate_some(range, true);
  for (uint64_t rounds = 16 + slot_count_; more && rounds > 0; --rounds) {
    more = invalidate_some(range, false);
  }
  return Status::kOk;
}

Status Domain::vouch(MemoryRange range, bool on) noexcept {
  const Status status = check_range(range);
  if (status != Status::kOk) return status;
  {
    MutexLock lock(mu_);
    // Memory comes and goes by the page, so a promise for a byte is one for its page.
    const MemoryRange pages = round_out(range, config_.granule_bytes);
    if (!(on ? vouched_.add(pages) : vouched_.remove(pages))) {
      return fail(Status::kResource, "more than %zu separate vouched ranges", vouched_.size());
    }
  }
  return on ? Status::kOk : invalidate(range);
}

void Domain::flush() noexcept {
  RegionQueue retired;
  {
    MutexLock lock(mu_);
    RegionQueue shut;
    for (RegionIndex r = 1; r <= high_; ++r) {
      if (infos_[r].state != RegionState::kOpen || infos_[r].prepinned) continue;
      shut_locked(r);
      shut.push(infos_, r);
    }
    if (!shut.empty()) fence_locked();
    while (!shut.empty()) {
      const RegionIndex r = shut.pop(infos_);
      if (settled_holds_locked(r) != 0) {
        reopen_locked(r);
        continue;
      }
      tables_[bits(infos_[r].access)]->erase(infos_[r].range, r);
      retire_locked(r, &retired);
    }
    drain_dead_locked(dead_.size(), &retired);
  }
  unpin_retired(&retired, false);
}

Status Domain::pin_until(MemoryRange range, Access need, uint64_t timeout_ns,
                         const RegionSlot** out) noexcept {
  const uint64_t begun = now_ns();
  const uint64_t deadline = begun + std::min(timeout_ns, UINT64_MAX - begun);
  uint64_t pause = kFirstPauseNs;
  for (;;) {
    // A release tells nobody, so that it costs nothing; whoever waits looks again from time to time.
    const uint64_t tried = now_ns();
    const Status status = pin(range, need, Effort::kRegister, out, deadline);
    if (status != Status::kNotReady) return status;
    const uint64_t now = now_ns();
    if (now >= deadline) {
      return add_context(Status::kNotReady, "waited %llu us for %zu bytes at %#zx",
                         static_cast<unsigned long long>((now - begun) / 1000), range.len,
                         static_cast<size_t>(range.addr));
    }
    const uint64_t rest = std::min((now - tried) * kRestPerTry, kLongestRestNs);
    pause_ns(std::min(std::max(pause, rest), deadline - now));
    pause = std::min(pause * 2, kLongestPauseNs);
    poll_briefly(deadline);
  }
}

Status Domain::pin_partial(MemoryRange range, Access need, const RegionSlot** out) noexcept {
  const Status status = check_range(range);
  if (status != Status::kOk) return status;
  Want want = make_want(range, need, Effort::kHitOnly, enter());
  ThreadDomain* thread = want.thread;
  if (checked_regions_.load(std::memory_order_relaxed) != 0) (void)become_quiet(want);
  MutexLock lock(mu_);
  RegionIndex best = kNoRegion;
  for (uint32_t c = 0; c < 16; ++c) {
    if ((classes_.load(std::memory_order_relaxed) >> c & 1) == 0 ||
        !includes(static_cast<Access>(c), need)) {
      continue;
    }
    // Whatever covers the first address, else the lowest start: any_overlap() answers in this order.
    const RegionIndex r = tables_[c]->any_overlap(range.addr, range.last());
    if (r == kNoRegion || (infos_[r].checked && !want.quiet)) continue;
    if (best == kNoRegion || std::max(infos_[r].range.addr, range.addr) <
                                 std::max(infos_[best].range.addr, range.addr)) {
      best = r;
    }
  }
  if (best == kNoRegion) {
    count_outcome(thread, Status::kNotReady);
    return fail_plainly(Status::kNotReady, "nothing of the range is pinned");
  }
  if (gate_is_shut(slot(best))) reopen_locked(best);
  take_locked(thread, best);
  if (thread != nullptr) ThreadCounters::add(thread->counters.refills);
  *out = &slot(best);
  return Status::kOk;
}

bool Domain::describe(const RegionSlot* s, MemoryRange* range, const std::byte** key) noexcept {
  if (is_span(s)) return false;
  MutexLock lock(mu_);
  const RegionInfo& info = infos_[index_of(s)];
  if (info.state != RegionState::kOpen && info.state != RegionState::kDead) return false;
  *range = info.range;
  *key = key_stride_ != 0 ? key_of(index_of(s)) : nullptr;
  return true;
}

}  // namespace hydrant
