// Pins of several regions at once: hydrant_pin_many(), and page mode's requests of several buckets.
//
// Both hold what is there, reserve budget for all that is missing, and only then register: all or none. A
// request of several buckets is answered with a span: a slot of its own that remembers the buckets' slots.
// Spans are not cached; their release gives each bucket back.
#include "firehose/domain.hpp"

#include <algorithm>
#include <cstdlib>

namespace hydrant {

namespace {

// Sums that a client's large ranges cannot make small again.
constexpr uint64_t add_up(uint64_t a, uint64_t b) {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

}  // namespace

size_t Domain::buckets_in(MemoryRange range) const noexcept {
  return round_out(range, config_.granule_bytes).len / config_.granule_bytes;
}

void Domain::drop_hold_of(ThreadDomain* thread, const RegionSlot* s) noexcept {
  if (thread != nullptr && s->tag.load(std::memory_order_relaxed) == handle_) {
    drop_hold(thread->counts[index_of(s)]);
  } else {
    (void)release(s);
  }
}

// Budget for every range that is not held yet.
Status Domain::reserve_missing(const MemoryRange* ranges, size_t n, const RegionSlot* const* held,
                               Reservation* reservation) noexcept {
  uint64_t charge = 0;
  uint32_t regions = 0;
  for (size_t i = 0; i < n; ++i) {
    if (held[i] != nullptr) continue;
    charge = add_up(charge, registrar_->charge(round_out(ranges[i], config_.granule_bytes)));
    ++regions;
  }
  if (regions == 0) return Status::kOk;
  const uint64_t kernel_pending = registrar_->pending_charge();
  Status status = Status::kOk;
  {
    MutexLock lock(mu_);
    status = reserve_locked(ranges[0], charge, regions, kernel_pending, reservation);
  }
  const Status paid = pay_with_victims(reservation);
  return status != Status::kOk ? status : paid;
}

// kResource when the ranges could not all be held even by an empty cache: "not now" would be a lie. What
// several ranges have in common counts for each; what the client pinned itself costs nothing.
Status Domain::check_total(const MemoryRange* ranges, size_t n, Access need) noexcept {
  const auto charge_of = [&](size_t i) {
    return registrar_->charge(round_out(ranges[i], config_.granule_bytes));
  };
  uint64_t charge = 0;
  size_t regions = n;
  for (size_t i = 0; i < n; ++i) {
    charge = add_up(charge, charge_of(i));
    if (round_out(ranges[i], config_.granule_bytes).len <= config_.max_region_bytes) continue;
    MutexLock lock(mu_);
    if (find_locked(ranges[i], need) != kNoRegion) continue;
    return fail_too_large(ranges[i]);
  }
  if (charge <= config_.budget_bytes && regions <= config_.max_regions) return Status::kOk;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t own = charge_of(i);
    MutexLock lock(mu_);
    const RegionIndex r = find_locked(ranges[i], need);
    if (r == kNoRegion || !infos_[r].prepinned) continue;
    charge -= own;
    --regions;
  }
  if (charge <= config_.budget_bytes && regions <= config_.max_regions) return Status::kOk;
  return fail(Status::kResource,
              "domain %s: %zu ranges from %#zx on charge %llu bytes in all, more than the whole "
              "budget of %llu bytes and %u regions: raise options.budget_bytes or FIREHOSE_BUDGET "
              "(options.max_regions or FIREHOSE_MAX_REGIONS), or copy",
              config_.name, n, static_cast<size_t>(ranges[0].addr),
              static_cast<unsigned long long>(charge),
              static_cast<unsigned long long>(config_.budget_bytes), config_.max_regions);
}

// Each range lies in one region (page mode: in one bucket). held[i] answers ranges[i].
Status Domain::acquire_all(const Want& like, const MemoryRange* ranges, size_t n,
                           const RegionSlot** held) noexcept {
  ThreadDomain* thread = like.thread;
  Want asked = like;
  if (checked_regions_.load(std::memory_order_relaxed) != 0) (void)become_quiet(asked);
  const bool may_register = like.effort != Effort::kHitOnly;
  Status status = may_register ? check_total(ranges, n, like.need) : Status::kOk;
  for (size_t i = 0; i < n && status == Status::kOk; ++i) {
    held[i] = nullptr;
    Want want = make_want(ranges[i], like.need, Effort::kHitOnly, thread);
    want.quiet = asked.quiet;
    want.restless = asked.restless;
    if (pin_one(want, &held[i]) != Status::kOk && !may_register) {
      status = Status::kNotReady;
    }
  }
  Reservation reservation;
  if (status == Status::kOk) status = reserve_missing(ranges, n, held, &reservation);
  for (size_t i = 0; i < n && status == Status::kOk; ++i) {
    if (held[i] != nullptr) continue;
    Want want = make_want(ranges[i], like.need, like.effort, thread);
    want.quiet = asked.quiet;
    want.restless = asked.restless;
    want.may_wait = like.may_wait;
    want.deadline_ns = like.deadline_ns;
    want.prepaid = &reservation;
    status = pin_one(want, &held[i]);
  }
  if (reservation.regions != 0 || reservation.charge != 0) {
    MutexLock lock(mu_);
    give_back_locked(&reservation);
  }
  if (status == Status::kOk) return status;
  for (size_t i = 0; i < n; ++i) {
    if (held[i] != nullptr) drop_hold_of(thread, held[i]);
    held[i] = nullptr;
  }
  return status;
}

Status Domain::make_span(MemoryRange pages, const RegionSlot* const* held, size_t n,
                         const RegionSlot** out) noexcept {
  SpanParts* parts = SpanParts::create(n);
  if (parts == nullptr) return fail(Status::kResource, "no memory for a pin of %zu buckets", n);
  for (size_t i = 0; i < n; ++i) parts->regions[i] = index_of(held[i]);
  const RegionSlot* s = nullptr;
  uint32_t capacity = 0;
  {
    MutexLock lock(mu_);
    s = spans_.take(pages, parts);
    capacity = spans_.capacity();
  }
  if (s == nullptr) {
    std::free(parts);  // without the mutex: see the lock table
    return fail(Status::kResource,
                "domain %s: %u pins of several buckets are held, which is all that the address "
                "space has room for: release some",
                config_.name, capacity);
  }
  *out = s;
  return Status::kOk;
}

Status Domain::pin_span(const Want& want, const RegionSlot** out) noexcept {
  const MemoryRange pages = want.pages;
  const size_t n = pages.len / config_.granule_bytes;
  if (n > config_.max_regions) {
    return fail(Status::kResource,
                "domain %s: [%#zx, +%zu) is %zu buckets, more than max_regions = %u: raise "
                "options.max_regions or FIREHOSE_MAX_REGIONS, or take larger buckets",
                config_.name, static_cast<size_t>(want.range.addr), want.range.len, n,
                config_.max_regions);
  }
  auto* ranges = static_cast<MemoryRange*>(std::calloc(n, sizeof(MemoryRange)));
  auto* held = static_cast<const RegionSlot**>(std::calloc(n, sizeof(RegionSlot*)));
  Status status = Status::kOk;
  if (ranges == nullptr || held == nullptr) {
    status = fail(Status::kResource, "no memory for a pin of %zu buckets", n);
  } else {
    for (size_t i = 0; i < n; ++i) {
      ranges[i] = {pages.addr + i * config_.granule_bytes, config_.granule_bytes};
    }
    status = acquire_all(want, ranges, n, held);
    if (status == Status::kOk) status = make_span(pages, held, n, out);
    for (size_t i = 0; status != Status::kOk && i < n; ++i) {
      if (held[i] != nullptr) drop_hold_of(want.thread, held[i]);
    }
  }
  std::free(ranges);
  std::free(held);
  return status;
}

// Frees what spans remember. Requires: nobody else is inside a call.
void Domain::free_spans() noexcept HYDRANT_NO_TSA { spans_.free_all(); }

Status Domain::release_span(const RegionSlot* s, ThreadDomain* thread) noexcept {
  SpanParts* parts = nullptr;
  bool parents = false;
  if (thread != nullptr) ThreadCounters::add(thread->counters.slow_releases);
  {
    MutexLock lock(mu_);
    parts = spans_.give_back(s);
    parents = parts == nullptr && spans_.is_tombstone(s);
  }
  if (parents) {
    return fail(Status::kNotInit, "this pin was taken before the fork that made this process");
  }
  if (parts == nullptr) {
    return fail(Status::kBadArg, "this pin is not live: it was released before");
  }
  for (size_t i = 0; i < parts->count; ++i) drop_hold_of(thread, &slot(parts->regions[i]));
  std::free(parts);
  return Status::kOk;
}

size_t Domain::parts(const RegionSlot* s, size_t i, hydrant_region_t* part) noexcept {
  if (part != nullptr) *part = {};
  MutexLock lock(mu_);
  RegionIndex r = kNoRegion;
  size_t count = 1;
  if (is_span(s)) {
    const SpanParts* parts = spans_.find(s);
    if (parts == nullptr) return 0;
    count = parts->count;
    if (i < count) r = parts->regions[i];
  } else {
    r = index_of(s);
    if (infos_[r].state != RegionState::kOpen && infos_[r].state != RegionState::kDead) return 0;
  }
  if (part != nullptr && i < count) {
    *part = {infos_[r].range.addr, infos_[r].range.len, key_stride_ != 0 ? key_of(r) : nullptr};
  }
  return count;
}

// How many regions or buckets the ranges are. Errors: kBadArg; kResource before anything is allocated.
Status Domain::count_parts(const hydrant_range_t* ranges, size_t n, size_t* total) const noexcept {
  *total = 0;
  for (size_t i = 0; i < n; ++i) {
    const MemoryRange range{ranges[i].addr, ranges[i].len};
    const Status status = check_range(range);
    if (status != Status::kOk) return add_context(status, "range %zu of %zu", i, n);
    *total += config_.mode == HYDRANT_MODE_PAGE ? buckets_in(range) : 1;
    if (*total <= config_.max_regions) continue;
    return fail(Status::kResource,
                "domain %s: the first %zu of %zu ranges need more than max_regions = %u: raise "
                "options.max_regions or FIREHOSE_MAX_REGIONS, or pin fewer at once",
                config_.name, i + 1, n, config_.max_regions);
  }
  return Status::kOk;
}

Status Domain::pin_many(const hydrant_range_t* ranges, size_t n, Access need,
                        const RegionSlot** out) noexcept {
  size_t total = 0;
  Status status = count_parts(ranges, n, &total);
  if (status != Status::kOk) return status;
  ThreadDomain* thread = enter();
  const Want like = make_want({ranges[0].addr, ranges[0].len}, need, Effort::kRegister, thread);
  // NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): each range has a part
  auto* wanted = static_cast<MemoryRange*>(std::calloc(total, sizeof(MemoryRange)));
  auto* held = static_cast<const RegionSlot**>(std::calloc(total, sizeof(RegionSlot*)));
  if (wanted == nullptr || held == nullptr) {
    status = fail(Status::kResource, "no memory for a pin of %zu regions", total);
  } else {
    for (size_t i = 0, k = 0; i < n; ++i) {
      const MemoryRange range{ranges[i].addr, ranges[i].len};
      const MemoryRange pages = round_out(range, config_.granule_bytes);
      if (config_.mode == HYDRANT_MODE_REGION) {
        wanted[k++] = range;
        continue;
      }
      for (size_t b = 0; b < pages.len; b += config_.granule_bytes) {
        wanted[k++] = {pages.addr + b, config_.granule_bytes};
      }
    }
    status = acquire_all(like, wanted, total, held);
    if (status == Status::kOk) status = group_held(ranges, n, held, total, thread, out);
  }
  std::free(wanted);
  std::free(held);
  count_outcome(thread, status);
  return status;
}

// Turns the holds of pin_many into one answer per range; drops all of them when it cannot.
Status Domain::group_held(const hydrant_range_t* ranges, size_t n, const RegionSlot** held,
                          size_t total, ThreadDomain* thread, const RegionSlot** out) noexcept {
  Status status = Status::kOk;
  size_t done = 0;
  size_t used = 0;
  for (; done < n && status == Status::kOk; ++done) {
    const MemoryRange range{ranges[done].addr, ranges[done].len};
    const size_t count = config_.mode == HYDRANT_MODE_PAGE ? buckets_in(range) : 1;
    if (count == 1) {
      out[done] = held[used];
    } else {
      status = make_span(round_out(range, config_.granule_bytes), held + used, count, &out[done]);
      if (status != Status::kOk) break;
    }
    used += count;
  }
  if (status == Status::kOk) return status;
  for (size_t i = 0; i < done; ++i) (void)release(out[i]);
  for (; used < total; ++used) drop_hold_of(thread, held[used]);
  return status;
}

}  // namespace hydrant
