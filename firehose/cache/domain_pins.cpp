// Implements the client's calls on a domain and routes each to the operation that does the work. Partial pins
// and queries about pins are done here.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/cache/domain.hpp"
#include "firehose/pin/failure_texts.hpp"

#include <algorithm>
#include <optional>

namespace hydrant {
namespace {

constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kMaxPauseNs = 1'000'000;
// A thread that waits for budget searches the regions under the mutex. It then rests this many times as long
// as the attempt took.
constexpr uint64_t kRestPerTry = 16;
constexpr uint64_t kMaxRestNs = 20'000'000;

}  // namespace

Status Domain::pin(MemoryRange range, Access need, MissPolicy policy, const RegionSlot** out,
                   uint64_t deadline_ns, std::optional<Admission>* admission) noexcept {
  Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  PinRequest request = miss_.make_request(range, need, policy);
  request.deadline_ns = deadline_ns;
  if (admission != nullptr) request.admission = *admission;
  status = spans_.needs_span(range) ? spans_.pin(request, out) : miss_.pin(request, out);
  if (admission != nullptr) *admission = request.admission;
  MissPath::count_outcome(request.thread, status);
  if (status == Status::kNotReady && policy == MissPolicy::kHitOnly) {
    return fail_literal(status, "no pinned region covers the range; hydrant_pin() registers it");
  }
  if (status == Status::kRefused && parts_.config.mode == HYDRANT_MODE_PAGE) {
    return add_context(status, "asked for [%#zx, +%zu), whose buckets are pinned whole",
                       static_cast<size_t>(range.addr), range.len);
  }
  return status;
}

Status Domain::pin_until(MemoryRange range, Access need, uint64_t timeout_ns,
                         const RegionSlot** out) noexcept {
  const uint64_t begun = now_ns();
  const uint64_t deadline = begun + std::min(timeout_ns, UINT64_MAX - begun);
  uint64_t pause = kFirstPauseNs;
  std::optional<Admission> admission;
  const Status checked = miss_.check_range(range);
  if (checked != Status::kOk) return checked;
  const BegunPin counted(parts_, range);
  for (;;) {
    // A release does not signal, so that it costs nothing; a waiting thread polls with backoff.
    const uint64_t tried = now_ns();
    const Status status = pin(range, need, MissPolicy::kRegister, out, deadline, &admission);
    if (status != Status::kNotReady) return status;
    const uint64_t now = now_ns();
    if (now >= deadline) {
      return add_context(Status::kNotReady, "waited %llu us for %zu bytes at %#zx",
                         static_cast<unsigned long long>((now - begun) / 1000), range.len,
                         static_cast<size_t>(range.addr));
    }
    const uint64_t rest = std::min((now - tried) * kRestPerTry, kMaxRestNs);
    uncancelled::sleep_ns(std::min(std::max(pause, rest), deadline - now));
    pause = std::min(pause * 2, kMaxPauseNs);
    poll_briefly(deadline);
  }
}

// The open region that covers the first address of the request, else the one with the lowest start in it.
RegionIndex Domain::find_partial(const CacheLock& lock, const PinRequest& request) noexcept {
  const auto& infos = parts_.store.infos(lock);
  const MemoryRange range = request.range;
  RegionIndex best = kNoRegion;
  uint32_t classes = parts_.tables.classes(lock) & kClassesIncluding[bits(request.need)];
  while (classes != 0) {
    // any_overlap() prefers regions in this order.
    const RegionIndex r =
        parts_.tables.table(lock, take_lowest(&classes)).any_overlap(range.addr, range.last());
    if (r == kNoRegion) continue;
    parts_.gates.check_from_now_on(lock, r);
    if (infos[r].checked && !request.quiet) continue;
    if (best == kNoRegion ||
        std::max(infos[r].range.addr, range.addr) < std::max(infos[best].range.addr, range.addr)) {
      best = r;
    }
  }
  return best;
}

Status Domain::pin_partial(MemoryRange range, Access need, const RegionSlot** out) noexcept {
  const Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  PinRequest request = miss_.make_request(range, need, MissPolicy::kHitOnly);
  if (parts_.checks.must_query()) (void)parts_.watch.wait_until_quiet(request);
  const CachePhase lock(parts_);
  const RegionIndex best = find_partial(lock, request);
  if (best == kNoRegion) {
    MissPath::count_outcome(request.thread, Status::kNotReady);
    return fail_literal(Status::kNotReady,
                        "nothing of the range is pinned; hydrant_pin() registers it");
  }
  miss_.take(lock, request.thread, best);
  *out = &parts_.store.slot(best);
  return Status::kOk;
}

Status Domain::pin_async(MemoryRange range, Access need, hydrant_pinned_fn done,
                         void* context) noexcept {
  const Status status = miss_.check_range(range);
  return status == Status::kOk ? deferred_.pin(range, need, done, context) : status;
}

Status Domain::release(const RegionSlot* slot) noexcept {
  if ((reinterpret_cast<uintptr_t>(slot) & (sizeof(RegionSlot) - 1)) != 0) {
    return fail(Status::kBadArg, "%p is not a pin: pass what a pinning call returned",
                static_cast<const void*>(slot));
  }
  return spans_.release(slot, parts_.threads.current_thread_state());
}

Status Domain::invalidate(MemoryRange range) noexcept {
  // A range up to the end of memory is valid here: no region reaches into the part that is cut off.
  const uintptr_t most = UINTPTR_MAX - 2 * parts_.config.granule_bytes;
  if (range.valid() && range.last() > most && range.addr <= most) range.len = most - range.addr + 1;
  const Status status = miss_.check_range(range);
  return status == Status::kOk ? releases_.invalidate(range) : status;
}

Status Domain::vouch(MemoryRange range, bool on) noexcept {
  const Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  {
    const CachePhase lock(parts_);
    // Memory is mapped and unmapped in pages, so vouching for a byte vouches for its page.
    const MemoryRange pages = round_out(range, parts_.config.granule_bytes);
    VouchedRanges& vouched = parts_.vouched;
    if (!(on ? vouched.add(lock, pages) : vouched.remove(lock, pages))) {
      return fail(Status::kResource,
                  "domain %s: %svouching for [%#zx, +%zu) makes more than %zu separate vouched "
                  "ranges: vouch for fewer and larger ranges, or take some back",
                  parts_.config.name, on ? "" : "no longer ", static_cast<size_t>(range.addr),
                  range.len, vouched.size(lock));
    }
  }
  return on ? Status::kOk : invalidate(range);
}

Status Domain::coverage(MemoryRange range, uint32_t* out) noexcept {
  const Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  const MemoryRange pages = round_out(range, parts_.config.granule_bytes);
  {
    const CachePhase lock(parts_);
    *out = HYDRANT_COVERAGE_VOUCHED;
    if (parts_.vouched.covers(lock, pages)) return Status::kOk;
  }
  *out = parts_.watch.coverage(pages);
  return Status::kOk;
}

int Domain::poll() noexcept {
  // The reader may not have passed the caller's last release to this cache yet.
  parts_.watch.settle();
  if (releases_.looks_idle() && deferred_.looks_idle()) return 0;
  const CancellationDisabled guard;
  releases_.drain_some_dead(UINT64_MAX);
  return deferred_.looks_idle() ? 0 : deferred_.run(MissPolicy::kRegister, UINT64_MAX);
}

// Polls for a thread that waits until its deadline. The registrations of other threads' deferred pins, which
// have no bound, are left to poll().
void Domain::poll_briefly(uint64_t deadline_ns) noexcept {
  if (releases_.looks_idle() && deferred_.looks_idle()) return;
  const CancellationDisabled guard;
  releases_.drain_some_dead(deadline_ns);
  if (!deferred_.looks_idle()) (void)deferred_.run(MissPolicy::kHitOnly, deadline_ns);
}

size_t Domain::parts(const RegionSlot* slot, size_t i, hydrant_region_t* part) noexcept {
  if (part != nullptr) *part = {};
  const CachePhase lock(parts_);
  const auto& infos = parts_.store.infos(lock);
  RegionIndex r = kNoRegion;
  size_t count = 1;
  if (spans_.is_span(slot)) {
    const SpanParts* parts = spans_.table(lock).find(slot);
    if (parts == nullptr) return 0;
    count = parts->count;
    if (i < count) r = parts->regions[i];
  } else {
    r = parts_.store.index_of(slot);
    if (infos[r].state != RegionState::kOpen && infos[r].state != RegionState::kDead) return 0;
  }
  if (part != nullptr && i < count) {
    *part = {infos[r].range.addr, infos[r].range.len, parts_.store.keys().shown(r)};
  }
  return count;
}

bool Domain::describe(const RegionSlot* slot, MemoryRange* range, const std::byte** key) noexcept {
  if (spans_.is_span(slot)) return false;
  const CachePhase lock(parts_);
  const RegionIndex r = parts_.store.index_of(slot);
  const RegionInfo& info = parts_.store.infos(lock)[r];
  if (info.state != RegionState::kOpen && info.state != RegionState::kDead) return false;
  *range = info.range;
  *key = parts_.store.keys().shown(r);
  return true;
}

}  // namespace hydrant
