// Chooses what a miss registers (planner.hpp). Runs in the first phase of a miss, under the mutex.
#include "firehose/cache/plan/planner.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kJoinQuarter = 4;  // see join_neighbour()
constexpr int kMaxTrims = 8;

MemoryRange union_of(MemoryRange a, MemoryRange b) {
  const uintptr_t addr = std::min(a.addr, b.addr);
  return {addr, std::max(a.last(), b.last()) - addr + 1};
}

}  // namespace

// Joins a neighbour that overlaps or touches the plan, if it is no longer than the plan, or once requests
// that reached over its ends add up to a quarter of it. So memory that is used piece by piece is registered
// again a bounded number of times, and neighbours that are used across their border become one.
bool Planner::join_neighbour(const CacheLock& lock, RegionIndex neighbour, size_t most,
                             Plan* plan) noexcept {
  RegionInfo& info = parts_.store.infos(lock)[neighbour];
  if (info.prepinned || plan->range.covers(info.range)) return false;
  const MemoryRange whole = union_of(plan->range, info.range);
  if (whole.len > most) return false;
  if (info.range.len > plan->range.len) {
    info.crossed_bytes += plan->range.len;
    if (info.crossed_bytes < info.range.len / kJoinQuarter) return false;
  }
  plan->range = whole;
  plan->access = plan->access | info.access;
  return true;
}

// Joins two regions of similar size at once if the request crosses their border and they cover it together:
// streams leave accidental borders. The result is larger by a quarter at least, so that a byte is registered
// again a bounded number of times.
bool Planner::close_gap(const CacheLock& lock, Plan* plan) noexcept {
  const auto& infos = parts_.store.infos(lock);
  const DomainConfig& config = parts_.config;
  const RegionIndex a = parts_.tables.find(lock, {plan->range.addr, 1}, Access::kLocalRead);
  if (a == kNoRegion || infos[a].prepinned) return false;
  const RegionIndex b = parts_.tables.find(lock, {plan->range.last(), 1}, Access::kLocalRead);
  if (b == kNoRegion || infos[b].prepinned || a == b) return false;
  const MemoryRange low = infos[a].range;
  const MemoryRange high = infos[b].range;
  const MemoryRange whole = union_of(low, high);
  // (No longer than the request: then its own rights will do.)
  if (low.end() < high.addr || whole == plan->range || whole.len > config.merge_bytes ||
      whole.len > config.max_region_bytes ||
      std::min(low.len, high.len) < std::max(low.len, high.len) / kJoinQuarter) {
    return false;
  }
  plan->range = whole;
  plan->access = plan->access | infos[a].access | infos[b].access;
  return true;
}

void Planner::extend(const CacheLock& lock, Plan* plan) noexcept {
  if (close_gap(lock, plan)) return;
  const size_t most = std::min(parts_.config.merge_bytes, parts_.config.max_region_bytes);
  for (bool grown = true; grown;) {
    grown = false;
    uint32_t classes = parts_.tables.classes(lock);
    while (classes != 0) {
      const PinTable& table = parts_.tables.table(lock, take_lowest(&classes));
      const uintptr_t addr = plan->range.addr;
      const RegionIndex before = table.any_overlap(addr - (addr != 0), addr);
      if (before != kNoRegion && join_neighbour(lock, before, most, plan)) grown = true;
      const uintptr_t end = plan->range.end();
      const RegionIndex after = table.any_overlap(end - 1, end);
      if (after != kNoRegion && join_neighbour(lock, after, most, plan)) grown = true;
    }
  }
}

// The part of `range` that is not registered yet, and adjoins the request.
MemoryRange Planner::without_registered(const CacheLock& lock, MemoryRange pages,
                                        MemoryRange range) const noexcept {
  const bool down = range.addr < pages.addr;
  bool trimmed = true;
  for (int i = 0; trimmed && range != pages; ++i) {
    if (i == kMaxTrims) return pages;
    trimmed = false;
    uint32_t classes = parts_.tables.classes(lock);
    while (classes != 0 && range != pages) {
      const PinTable& table = parts_.tables.table(lock, take_lowest(&classes));
      const RegionIndex r = down ? table.any_overlap(range.addr, pages.addr - 1)
                                 : table.any_overlap(pages.end(), range.last());
      if (r == kNoRegion) continue;
      const MemoryRange there = parts_.store.infos(lock)[r].range;
      trimmed = true;
      if (down) {
        const uintptr_t from = std::min(there.end(), pages.addr);
        range = {from, pages.end() - from};
      } else {
        range = {pages.addr, std::max(there.addr, pages.end()) - pages.addr};
      }
    }
  }
  return range;
}

// True if the plan is longer than the request now.
bool Planner::follow_stream(const CacheLock& lock, PinRequest& request, Plan* plan) noexcept {
  if (parts_.config.stream_bytes == 0) return false;
  StreamDetector& streams = parts_.extensions.streams(lock);
  if (!request.noted) {
    request.noted = true;
    const size_t most =
        std::min<uint64_t>(parts_.config.stream_bytes, parts_.budget.in_force(lock) / 8);
    request.advice =
        streams.note_miss(request.pages, most, streams.has_borders() ? rule_now_ns() : 0);
    if (request.advice.passed != 0) {
      const RegionIndex r =
          parts_.tables.find(lock, {request.advice.passed, 1}, Access::kLocalRead);
      if (r != kNoRegion) Extensions::note_all_reached(parts_.store.slot(r));
    }
  }
  if (request.advice.range == request.pages) return false;
  const MemoryRange range = without_registered(lock, request.pages, request.advice.range);
  if (range == request.pages || is_refused(lock, range, plan->access)) return false;
  plan->range = range;
  plan->stream = true;
  plan->down = request.advice.down;
  return true;
}

void Planner::plan(const CacheLock& lock, PinRequest& request, Plan* plan) noexcept {
  const DomainConfig& config = parts_.config;
  plan->range = request.pages;
  plan->stream = plan->huge_pages = plan->once = false;
  plan->extra_bytes = 0;
  plan->invalidations = invalidations_;
  plan->access = request.plain ? request.need : request.need | config.eager;
  if (is_refused(lock, plan->range, plan->access)) plan->access = request.need;
  const bool may_extend = config.mode == HYDRANT_MODE_REGION && !request.exact &&
                          request.prepaid == nullptr && config.watch != HYDRANT_WATCH_NONE &&
                          !request.restless &&
                          (request.policy != MissPolicy::kRegisterSparingly ||
                           parts_.budget.charged(lock) <= parts_.budget.in_force(lock) / 2);
  // Neighbours are never joined if that would need an eviction; then the search is not worth its time.
  const bool room = parts_.budget.has_room(lock, plan->range.len);
  if (may_extend && !follow_stream(lock, request, plan) && room &&
      plan->range.len < config.merge_bytes) {
    const Access alone = plan->access;
    extend(lock, plan);
    // claim() checks it again.
    if (!parts_.budget.has_room(lock, plan->range.len)) {
      plan->range = request.pages;
      plan->access = alone;
    }
  }
}

void Planner::note_claimed(const CacheLock& lock, const PinRequest& request,
                           const Plan& plan) noexcept {
  if (request.noted && plan.range != request.advice.range) {
    parts_.extensions.streams(lock).note_cut(request.pages, plan.range);
  }
}

void Planner::note_abandoned(const CacheLock& lock, const PinRequest& request, const Plan& plan,
                             bool refused) noexcept {
  if (!request.noted) return;
  StreamDetector& streams = parts_.extensions.streams(lock);
  if (plan.stream && refused) {
    streams.note_refused(request.pages, plan.range, rule_now_ns());
  } else {
    streams.note_cut(request.pages, request.pages);
  }
}

void Planner::forget(const CacheLock& lock, MemoryRange range) noexcept {
  ++invalidations_;
  refusals_.forget(round_out(range, parts_.config.granule_bytes));
  parts_.extensions.streams(lock).forget_borders(range);
}

void Planner::forget_all(const CacheLock& lock) noexcept {
  ++invalidations_;
  refusals_.clear();
  parts_.extensions.streams(lock).clear();
}

}  // namespace hydrant
