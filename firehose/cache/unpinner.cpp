// Deregisters retired regions (unpinner.hpp): the end of an eviction, an invalidation and a last release.
#include "firehose/cache/unpinner.hpp"

#include "firehose/base/log.hpp"

#include <algorithm>

namespace hydrant {
namespace {

void warn_of_over_release(const char* domain, MemoryRange range) noexcept {
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit,
              "domain %s: a pin of [%#zx, +%zu) was released more often than it was taken; debug "
              "builds name the release",
              domain, static_cast<size_t>(range.addr), range.len);
}

void warn_of_broken_unpin(const char* domain, MemoryRange first, size_t n) noexcept {
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "domain %s: the registrar could not unpin [%#zx, +%zu) (a call for %zu): %s",
              domain, static_cast<size_t>(first.addr), first.len, n, last_error_text());
}

}  // namespace

// As many ranges as the batch needs are on the stack: clearing 64 takes longer than the rest.
template <size_t kMost>
Unpinner::Outcome Unpinner::deregister_by(const RegionQueue& retired) noexcept {
  MemoryRange ranges[kMost];
  const std::byte* keys[kMost];
  Outcome outcome;
  RegionIndex next = retired.front();
  while (next != kNoRegion) {
    size_t n = 0;
    for (; next != kNoRegion && n < kMost; next = parts_.store.retiring(next).next) {
      const RegionInfo& info = parts_.store.retiring(next);
      if (info.over_released) warn_of_over_release(parts_.name, info.range);
      if (info.prepinned) continue;
      ranges[n] = info.range;
      keys[n++] = parts_.store.keys().of(next);
    }
    if (n == 0) continue;
    const UnpinResult result = n == 1 ? parts_.registrar.unpin(ranges[0], keys[0])
                                      : parts_.registrar.unpin_many(ranges, keys, n);
    // The registrar does not report which pins of a batch failed: all of it counts as failed.
    (result == UnpinResult::kBroken ? outcome.failures : outcome.unpinned) += n;
    if (result == UnpinResult::kBroken) warn_of_broken_unpin(parts_.name, ranges[0], n);
    outcome.worst = std::max(outcome.worst, result);
  }
  parts_.invalidator.handle_losses(parts_.registrar.losses());
  return outcome;
}

Unpinner::Outcome Unpinner::deregister(const RegionQueue& retired) noexcept {
  const RegistrarTraits& traits = parts_.registrar.traits();
  if (traits.wants_unmap_reports) parts_.watch.set_all_unmap_reports();
  return traits.unpins_in_batches ? deregister_by<64>(retired) : deregister_by<1>(retired);
}

void Unpinner::settle(const CacheLock& lock, RegionQueue* retired, const Outcome& outcome,
                      Charge charge) noexcept {
  auto& infos = parts_.store.infos(lock);
  hydrant_stats_t& totals = parts_.totals.of(lock);
  totals.unpins += outcome.unpinned;
  totals.unpin_failures += outcome.failures;
  while (!retired->empty()) {
    const RegionIndex r = retired->pop(infos);
    totals.pinned_bytes -= infos[r].range.len;
    if (charge == Charge::kReleased) parts_.budget.release(lock, {infos[r].charge, 1});
    parts_.unpins.end(lock, r);
    parts_.free_slots.quarantine(lock, r);
  }
}

bool Unpinner::unpin_all(RegionQueue* retired, Charge charge) noexcept {
  const Outcome outcome = deregister(*retired);
  const CacheLock lock(parts_.mu);
  parts_.invalidator.settle_pending(lock);
  settle(lock, retired, outcome, charge);
  return outcome.kernel_keeps();
}

}  // namespace hydrant
