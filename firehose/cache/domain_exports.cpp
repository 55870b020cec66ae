// Describes a pin to the target of a remote miss: step 6 of "Tour: a put". It also estimates whether
// a pin may fit, and reports exported memory that was released.
#include "firehose/cache/domain_exports.hpp"

#include <algorithm>

namespace hydrant {

bool ExportView::describe(const RegionSlot* slot, MemoryRange requested, ExportInfo* out) noexcept {
  *out = {};
  const CachePhase lock(parts_);
  const auto& infos = parts_.store.infos(lock);
  if (spans_.is_span(slot)) {
    const SpanParts* parts = spans_.table(lock).find(slot);
    if (parts == nullptr) return false;
    out->range = round_out(requested, parts_.config.granule_bytes);
    out->cached = true;
    for (size_t i = 0; i < parts->count; ++i) {
      out->cached = out->cached && !infos[parts->regions[i]].uncached;
      out->checked = out->checked || infos[parts->regions[i]].checked;
    }
    return true;
  }
  const RegionIndex r = parts_.store.index_of(slot);
  if (infos[r].state != RegionState::kOpen && infos[r].state != RegionState::kDead) return false;
  out->range = infos[r].range;
  out->key = parts_.store.keys().shown(r);
  out->cached = !infos[r].uncached;
  out->checked = infos[r].checked;
  return true;
}

void ExportView::evict_if_short(const RegionSlot* const* slots, size_t n, uint64_t bytes) noexcept {
  RegionQueue victims;
  {
    const CachePhase lock(parts_);
    if (n == 0 || parts_.budget.has_room(lock, bytes)) return;
    const auto& infos = parts_.store.infos(lock);
    const auto region_of = [&](const RegionSlot* slot) {
      return spans_.is_span(slot) ? kNoRegion : parts_.store.index_of(slot);
    };
    bool fenced = true;
    for (size_t i = 0; i < n; ++i) {
      const RegionIndex r = region_of(slots[i]);
      if (!parts_.evictor.evictable(lock, r)) continue;
      (void)parts_.gates.shut(lock, r);
      fenced = fenced && infos[r].closed_epoch != parts_.epoch.now(lock);
    }
    if (!fenced) parts_.epoch.fence(lock);
    uint64_t freed = 0;
    for (size_t i = 0; i < n; ++i) {
      const RegionIndex r = region_of(slots[i]);
      if (!parts_.evictor.evictable(lock, r)) continue;  // named twice, or dead
      if (parts_.budget.charged(lock) + bytes <= parts_.budget.in_force(lock) + freed ||
          parts_.holds.settled(lock, r) != 0) {
        parts_.evictor.reopen(lock, r);
        continue;
      }
      freed += infos[r].charge;
      parts_.evictor.evict_region(lock, r, &victims);
    }
  }
  (void)parts_.unpinner.unpin(&victims, Unpinner::Charge::kReleased);
}

bool ExportView::may_fit(MemoryRange range, Access need) noexcept {
  const uint64_t pending = parts_.registrar->pending_charge();
  const DomainConfig& config = parts_.config;
  const MemoryRange whole = round_out(range, config.granule_bytes);
  const bool in_buckets = config.mode == HYDRANT_MODE_PAGE;
  const auto regions =
      static_cast<uint32_t>(in_buckets ? whole.len / config.granule_bytes : size_t{1});
  const CachePhase lock(parts_);
  if (parts_.tables.find(lock, range, need) != kNoRegion) return true;
  // Only the registrar knows how much it would take now.
  if (parts_.budget.in_force(lock) < config.budget_bytes) return true;
  Budget::Share lack = parts_.budget.shortage(lock, {whole.len, regions});
  if (lack.bytes == 0 && !parts_.budget.has_room(lock, whole.len + pending)) return false;
  const auto& infos = parts_.store.infos(lock);
  (void)parts_.retirement.dead(lock).each(infos, [&](RegionIndex r) {
    if (static_cast<int32_t>(parts_.holds.sum(lock, r)) > 0) return true;
    lack.bytes -= std::min(lack.bytes, infos[r].charge);
    lack.regions -= std::min(lack.regions, 1u);
    return true;
  });
  if (lack.bytes == 0 && lack.regions == 0) return true;
  Budget::Share idle;
  return parts_.evictor.may_suffice(lock, lack, &idle);
}

const InvalidationLog& ExportView::invalidation_log() noexcept {
  if (parts_.invalidator.has_pending()) const CachePhase lock(parts_);
  return parts_.invalidator.invalidation_log();
}

}  // namespace hydrant
