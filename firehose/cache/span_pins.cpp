// Pins several buckets at once, all of them or none. Each bucket is pinned as in "Tour: a miss with
// eviction".
#include "firehose/cache/span_pins.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/pin/failure_texts.hpp"

#include <algorithm>
#include <cstdlib>

namespace hydrant {

namespace {

// Adds without wrapping, whatever the lengths of a client's ranges.
constexpr uint64_t add_up(uint64_t a, uint64_t b) {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

// The smallest range that contains them all.
MemoryRange hull_of(const hydrant_range_t* ranges, size_t n) noexcept {
  uintptr_t first = ranges[0].addr;
  uintptr_t end = first;
  for (size_t i = 0; i < n; ++i) {
    first = std::min(first, ranges[i].addr);
    end = std::max(end, ranges[i].addr + ranges[i].len);
  }
  return {first, end - first};
}

}  // namespace

size_t SpanPins::buckets_in(MemoryRange range) const noexcept {
  return round_out(range, parts_.config.granule_bytes).len / parts_.config.granule_bytes;
}

// Reserves budget for every range that is not held yet.
Status SpanPins::reserve_missing(MemoryRange requested, const MemoryRange* ranges, size_t n,
                                 const RegionSlot* const* held,
                                 MissPath::Payment* payment) noexcept {
  uint64_t charge = 0;
  uint32_t regions = 0;
  for (size_t i = 0; i < n; ++i) {
    if (held[i] != nullptr) continue;
    charge =
        add_up(charge, parts_.registrar->charge(round_out(ranges[i], parts_.config.granule_bytes)));
    ++regions;
  }
  if (regions == 0) return Status::kOk;
  const uint64_t kernel_pending = parts_.registrar->pending_charge();
  Status status = Status::kOk;
  {
    const CachePhase lock(parts_);
    status = miss_.reserve(lock, requested, {charge, regions}, kernel_pending, payment);
  }
  const Status paid = miss_.pay(requested, payment->reservation.share().bytes, payment, nullptr);
  return status != Status::kOk ? status : paid;
}

// kResource if even an empty cache could not hold all ranges: kNotReady would be wrong. Memory that several
// ranges share counts for each; prepinned memory costs nothing.
Status SpanPins::check_total(const PinRequest& like, size_t requests, const MemoryRange* ranges,
                             size_t n) noexcept {
  const Access need = like.need;
  // A longer range is refused, unless it is the client's own registration, which costs nothing.
  const auto charge_of = [&](size_t i) {
    const MemoryRange pages = round_out(ranges[i], parts_.config.granule_bytes);
    return pages.len <= parts_.config.max_region_bytes ? parts_.registrar->charge(pages) : 0;
  };
  uint64_t charge = 0;
  size_t regions = n;
  for (size_t i = 0; i < n; ++i) {
    charge = add_up(charge, charge_of(i));
    if (round_out(ranges[i], parts_.config.granule_bytes).len <= parts_.config.max_region_bytes)
      continue;
    const CachePhase lock(parts_);
    if (parts_.tables.find(lock, ranges[i], need) != kNoRegion) continue;
    return parts_.texts.too_large(ranges[i]);
  }
  if (charge <= parts_.config.budget_bytes && regions <= parts_.config.max_regions)
    return Status::kOk;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t own = charge_of(i);
    const CachePhase lock(parts_);
    const RegionIndex r = parts_.tables.find(lock, ranges[i], need);
    if (r == kNoRegion || !parts_.store.infos(lock)[r].prepinned) continue;
    charge -= own;
    --regions;
  }
  if (charge <= parts_.config.budget_bytes && regions <= parts_.config.max_regions)
    return Status::kOk;
  return parts_.texts.beyond_budget(like.range, requests, charge, regions);
}

// Each range lies in one region (page mode: in one bucket). held[i] is the pin of ranges[i].
Status SpanPins::acquire_all(const PinRequest& like, size_t requests, const MemoryRange* ranges,
                             size_t n, const RegionSlot** held) noexcept {
  PinRequest checked = like;
  if (parts_.checks.must_query()) (void)parts_.watch.wait_until_quiet(checked);
  const auto part_of = [&](MemoryRange range, MissPolicy policy) {
    PinRequest request{range, round_out(range, parts_.config.granule_bytes), like.need, like.thread,
                       policy};
    request.quiet = checked.quiet;
    request.restless = checked.restless;
    return request;
  };
  const bool may_register = like.policy != MissPolicy::kHitOnly;
  Status status = may_register ? check_total(like, requests, ranges, n) : Status::kOk;
  for (size_t i = 0; i < n && status == Status::kOk; ++i) {
    held[i] = nullptr;
    PinRequest request = part_of(ranges[i], MissPolicy::kHitOnly);
    if (miss_.pin(request, &held[i]) != Status::kOk && !may_register) {
      status = Status::kNotReady;
    }
  }
  {
    MissPath::Payment payment(parts_);
    if (status == Status::kOk) status = reserve_missing(like.range, ranges, n, held, &payment);
    for (size_t i = 0; i < n && status == Status::kOk; ++i) {
      if (held[i] != nullptr) continue;
      PinRequest request = part_of(ranges[i], like.policy);
      request.may_wait = like.may_wait;
      request.deadline_ns = like.deadline_ns;
      request.prepaid = &payment.reservation;
      status = miss_.pin(request, &held[i]);
    }
  }
  if (status == Status::kOk) return status;
  for (size_t i = 0; i < n; ++i) {
    if (held[i] != nullptr) (void)releases_.release(held[i], like.thread);
    held[i] = nullptr;
  }
  return status;
}

Status SpanPins::make_span(MemoryRange pages, const RegionSlot* const* held, size_t n,
                           const RegionSlot** out) noexcept {
  SpanParts* parts = SpanParts::create(n);
  if (parts == nullptr)
    return fail_no_memory(parts_.config.name, pages, "a pin of several buckets");
  for (size_t i = 0; i < n; ++i) parts->regions[i] = parts_.store.index_of(held[i]);
  const RegionSlot* s = nullptr;
  uint32_t capacity = 0;
  {
    const CachePhase lock(parts_);
    s = spans_.take(pages, parts);
    capacity = spans_.capacity();
  }
  if (s == nullptr) {
    std::free(parts);  // without the mutex: see the lock table
    return fail(Status::kResource,
                "domain %s: [%#zx, +%zu) is several buckets, and %u such pins are held, which is "
                "all that the address space has room for: release some",
                parts_.config.name, static_cast<size_t>(pages.addr), pages.len, capacity);
  }
  *out = s;
  return Status::kOk;
}

Status SpanPins::pin(const PinRequest& request, const RegionSlot** out) noexcept {
  const CancellationDisabled guard;
  const BegunPin begun(parts_, request.range);
  const MemoryRange pages = request.pages;
  const size_t n = pages.len / parts_.config.granule_bytes;
  if (n > parts_.config.max_regions) {
    return fail(Status::kResource,
                "domain %s: [%#zx, +%zu) is %zu buckets, more than max_regions = %u: raise "
                "options.max_regions or FIREHOSE_MAX_REGIONS, or take larger buckets",
                parts_.config.name, static_cast<size_t>(request.range.addr), request.range.len, n,
                parts_.config.max_regions);
  }
  auto* ranges = static_cast<MemoryRange*>(std::calloc(n, sizeof(MemoryRange)));
  auto* held = static_cast<const RegionSlot**>(std::calloc(n, sizeof(RegionSlot*)));
  Status status = Status::kOk;
  if (ranges == nullptr || held == nullptr) {
    status = fail_no_memory(parts_.config.name, request.range, "a pin of several buckets");
  } else {
    for (size_t i = 0; i < n; ++i) {
      ranges[i] = {pages.addr + i * parts_.config.granule_bytes, parts_.config.granule_bytes};
    }
    status = acquire_all(request, 1, ranges, n, held);
    if (status == Status::kOk) status = make_span(pages, held, n, out);
    for (size_t i = 0; status != Status::kOk && i < n; ++i) {
      if (held[i] != nullptr) (void)releases_.release(held[i], request.thread);
    }
  }
  std::free(ranges);
  std::free(held);
  return status;
}

Status SpanPins::release(const RegionSlot* slot, ThreadDomain* thread) noexcept {
  return is_span(slot) ? release_span(slot, thread) : releases_.release(slot, thread);
}

Status SpanPins::release_span(const RegionSlot* s, ThreadDomain* thread) noexcept {
  const CancellationDisabled guard;
  SpanParts* parts = nullptr;
  bool parents = false;
  if (thread != nullptr) ThreadCounters::add(thread->counters.slow_releases);
  {
    const CachePhase lock(parts_);
    parts = spans_.free_entry(s);
    parents = parts == nullptr && spans_.is_tombstone(s);
  }
  if (parents) return fail_pin_of_parent();
  if (parts == nullptr) return fail_pin_released();
  for (size_t i = 0; i < parts->count; ++i)
    (void)releases_.release(&parts_.store.slot(parts->regions[i]), thread);
  std::free(parts);
  return Status::kOk;
}

// Counts the regions or buckets of the ranges. Errors: kBadArg; kResource before anything is allocated.
Status SpanPins::count_parts(const hydrant_range_t* ranges, size_t n,
                             size_t* total) const noexcept {
  *total = 0;
  for (size_t i = 0; i < n; ++i) {
    const MemoryRange range{ranges[i].addr, ranges[i].len};
    const Status status = miss_.check_range(range);
    if (status != Status::kOk) return add_context(status, "range %zu of %zu", i, n);
    *total += parts_.config.mode == HYDRANT_MODE_PAGE ? buckets_in(range) : 1;
    if (*total <= parts_.config.max_regions) continue;
    return fail(Status::kResource,
                "domain %s: the first %zu of %zu ranges need more than max_regions = %u: raise "
                "options.max_regions or FIREHOSE_MAX_REGIONS, or pin fewer at once",
                parts_.config.name, i + 1, n, parts_.config.max_regions);
  }
  return Status::kOk;
}

Status SpanPins::pin_many(const hydrant_range_t* ranges, size_t n, Access need,
                          const RegionSlot** out) noexcept {
  size_t total = 0;
  Status status = count_parts(ranges, n, &total);
  if (status != Status::kOk) return status;
  const BegunPin begun(parts_, hull_of(ranges, n));
  const PinRequest like =
      miss_.make_request({ranges[0].addr, ranges[0].len}, need, MissPolicy::kRegister);
  ThreadDomain* thread = like.thread;
  // NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): each range has a part
  auto* wanted = static_cast<MemoryRange*>(std::calloc(total, sizeof(MemoryRange)));
  auto* held = static_cast<const RegionSlot**>(std::calloc(total, sizeof(RegionSlot*)));
  if (wanted == nullptr || held == nullptr) {
    status = fail_no_memory(parts_.config.name, like.range, "pins of several ranges");
  } else {
    for (size_t i = 0, k = 0; i < n; ++i) {
      const MemoryRange range{ranges[i].addr, ranges[i].len};
      const MemoryRange pages = round_out(range, parts_.config.granule_bytes);
      if (parts_.config.mode == HYDRANT_MODE_REGION) {
        wanted[k++] = range;
        continue;
      }
      for (size_t b = 0; b < pages.len; b += parts_.config.granule_bytes) {
        wanted[k++] = {pages.addr + b, parts_.config.granule_bytes};
      }
    }
    status = acquire_all(like, n, wanted, total, held);
    if (status == Status::kOk) status = group_held(ranges, n, held, total, thread, out);
  }
  std::free(wanted);
  std::free(held);
  MissPath::count_outcome(thread, status);
  return status;
}

// Turns the holds of pin_many into one pin per range; drops all of them if that fails.
Status SpanPins::group_held(const hydrant_range_t* ranges, size_t n, const RegionSlot** held,
                            size_t total, ThreadDomain* thread, const RegionSlot** out) noexcept {
  Status status = Status::kOk;
  size_t done = 0;
  size_t used = 0;
  for (; done < n && status == Status::kOk; ++done) {
    const MemoryRange range{ranges[done].addr, ranges[done].len};
    const size_t count = parts_.config.mode == HYDRANT_MODE_PAGE ? buckets_in(range) : 1;
    if (count == 1) {
      out[done] = held[used];
    } else {
      status =
          make_span(round_out(range, parts_.config.granule_bytes), held + used, count, &out[done]);
      if (status != Status::kOk) break;
    }
    used += count;
  }
  if (status == Status::kOk) return status;
  for (size_t i = 0; i < done; ++i) (void)release(out[i], thread);
  for (; used < total; ++used) (void)releases_.release(held[used], thread);
  return status;
}

}  // namespace hydrant
