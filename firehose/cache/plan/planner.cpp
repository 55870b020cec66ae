// Chooses what a miss registers (planner.hpp). Runs in the first phase of a miss, under the mutex.
#include "firehose/cache/plan/planner.hpp"

#include "firehose/cache/budget/evictor.hpp"
#include "firehose/hit/thread_state.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// See join_neighbour().
constexpr size_t kJoinShare = 4;
constexpr size_t kCrowdedJoinShare = 64;
constexpr int kMaxTrims = 8;

MemoryRange union_of(MemoryRange a, MemoryRange b) {
  const uintptr_t addr = std::min(a.addr, b.addr);
  return {addr, std::max(a.last(), b.last()) - addr + 1};
}

}  // namespace

// Joins a neighbour that overlaps or touches the plan, if it is no longer than the plan, or once requests
// that reached over its ends add up to a share of it. So memory that is used piece by piece is registered
// again a bounded number of times, and neighbours that are used across their border become one.
bool Planner::join_neighbour(const CacheLock& lock, RegionIndex neighbour, Growth growth,
                             Plan* plan) noexcept {
  RegionInfo& info = parts_.store.infos(lock)[neighbour];
  if (info.prepinned || plan->range.covers(info.range)) return false;
  const MemoryRange whole = union_of(plan->range, info.range);
  if (whole.len > growth.most) return false;
  if (info.range.len > plan->range.len) {
    info.crossed_bytes += plan->range.len;
    if (info.crossed_bytes < info.range.len / growth.share) return false;
  }
  plan->range = whole;
  plan->access = plan->access | info.access;
  return true;
}

// Joins two regions of similar size at once if the request crosses their border and they cover it together:
// streams leave accidental borders. The result is larger by a quarter at least, so that a byte is registered
// again a bounded number of times.
bool Planner::close_gap(const CacheLock& lock, size_t most, Plan* plan) noexcept {
  const auto& infos = parts_.store.infos(lock);
  const RegionIndex a = parts_.tables.find(lock, {plan->range.addr, 1}, Access::kLocalRead);
  if (a == kNoRegion || infos[a].prepinned) return false;
  const RegionIndex b = parts_.tables.find(lock, {plan->range.last(), 1}, Access::kLocalRead);
  if (b == kNoRegion || infos[b].prepinned || a == b) return false;
  const MemoryRange low = infos[a].range;
  const MemoryRange high = infos[b].range;
  const MemoryRange whole = union_of(low, high);
  // (No longer than the request: then its own rights will do.)
  if (low.end() < high.addr || whole == plan->range || whole.len > most ||
      std::min(low.len, high.len) < std::max(low.len, high.len) / kJoinShare) {
    return false;
  }
  plan->range = whole;
  plan->access = plan->access | infos[a].access | infos[b].access;
  return true;
}

void Planner::extend(const CacheLock& lock, Growth growth, Plan* plan) noexcept {
  if (close_gap(lock, growth.most, plan)) return;
  for (size_t joined = 0, last = 1; joined != last && joined <= growth.joins;) {
    last = joined;
    uint32_t classes = parts_.tables.classes(lock);
    while (classes != 0) {
      const PinTable& table = parts_.tables.table(lock, take_lowest(&classes));
      const uintptr_t addr = plan->range.addr;
      const RegionIndex before = table.any_overlap(addr - (addr != 0), addr);
      if (before != kNoRegion && join_neighbour(lock, before, growth, plan)) ++joined;
      const uintptr_t end = plan->range.end();
      const RegionIndex after = table.any_overlap(end - 1, end);
      if (after != kNoRegion && join_neighbour(lock, after, growth, plan)) ++joined;
    }
  }
}

Budget::Share Planner::replaced(const CacheLock& lock, const Plan& plan) const noexcept {
  Budget::Share share;
  parts_.tables.each_within(lock, plan.range, plan.access, [&](RegionIndex r) {
    share.bytes += parts_.store.infos(lock)[r].charge;
    ++share.regions;
  });
  return share;
}

// Extends a plan that lacks room by neighbours that are unpinned before it is registered, so that each byte
// is charged once. Otherwise regions that overlap would evict each other where all that is used fits into the
// budget. Where it does not fit, a long region would soon be evicted again. Such a region takes half of the
// budget at most: while it is held, it cannot be evicted for another one.
void Planner::replace_neighbours(const CacheLock& lock, Plan* plan) noexcept {
  const DomainConfig& config = parts_.config;
  const MemoryRange alone = plan->range;
  const Access rights = plan->access;
  const uint64_t budget = parts_.budget.in_force(lock);
  // Superfluous regions are unpinned in any case.
  const uint64_t superfluous = parts_.retirement.dead(lock).fresh_charge();
  if (parts_.budget.charged(lock) - superfluous + alone.len <= budget) return;
  if (!parts_.working_set.fits(lock, alone, budget)) return;
  const uint64_t most = std::min<uint64_t>(config.crowded_merge_bytes, budget / 2);
  extend(lock, {std::min<size_t>(most, config.max_region_bytes), kCrowdedJoinShare, kEvictionBatch},
         plan);
  const Budget::Share gone = replaced(lock, *plan);
  plan->replaces = gone.regions != 0 && gone.regions <= kEvictionBatch &&
                   parts_.budget.charged(lock) - gone.bytes + plan->range.len <= budget;
  if (plan->replaces) return;
  plan->range = alone;
  plan->access = rights;
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
  plan->stream = plan->huge_pages = plan->once = plan->replaces = false;
  plan->extra_bytes = 0;
  plan->invalidations = invalidations_;
  plan->access = request.plain ? request.need : request.need | config.eager;
  if (is_refused(lock, plan->range, plan->access)) plan->access = request.need;
  const bool may_extend = config.mode == HYDRANT_MODE_REGION && !request.exact &&
                          request.prepaid == nullptr && config.watch != HYDRANT_WATCH_NONE &&
                          !request.restless &&
                          (request.policy != MissPolicy::kRegisterSparingly ||
                           parts_.budget.charged(lock) <= parts_.budget.in_force(lock) / 2);
  if (!may_extend || follow_stream(lock, request, plan) || plan->range.len >= config.merge_bytes)
    return;
  if (parts_.budget.has_room(lock, plan->range.len)) {
    const Access alone = plan->access;
    extend(lock, {std::min(config.merge_bytes, config.max_region_bytes), kJoinShare, SIZE_MAX},
           plan);
    // Neighbours are never joined if that would need an eviction. claim() checks it again.
    if (parts_.budget.has_room(lock, plan->range.len)) return;
    plan->range = request.pages;
    plan->access = alone;
  }
  if (!config.is_remote) replace_neighbours(lock, plan);
}

void Planner::note_claimed(const CacheLock& lock, const PinRequest& request,
                           const Plan& plan) noexcept {
  parts_.working_set.note_registered(lock, plan.range.len);
  if (request.noted && plan.range != request.advice.range) {
    parts_.extensions.streams(lock).note_cut(request.pages, plan.range);
  }
}

void Planner::add_room(const CacheLock& lock, const PinRequest& request, const Plan& plan,
                       uint64_t kernel_pending,
                       AdmissionPolicy::Candidate* candidate) const noexcept {
  const bool has_own_room =
      request.prepaid != nullptr || (plan.replaces && candidate->lack_bytes == 0);
  const Budget::Share room = has_own_room ? Budget::Share{UINT64_MAX, UINT32_MAX}
                                          : parts_.budget.room(lock, kernel_pending);
  candidate->room_bytes = room.bytes;
  candidate->room_regions = room.regions;
  candidate->budget_bytes = parts_.budget.in_force(lock);
  candidate->is_stream = is_earned(request, plan);
  if (request.thread != nullptr) candidate->hits = request.thread->take_new_hits();
}

void Planner::note_abandoned(const CacheLock& lock, const PinRequest& request, const Plan& plan,
                             bool refused) noexcept {
  if (plan.replaces) parts_.working_set.note_failure(lock);
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
  parts_.working_set.forget(lock, range);
  refusals_.forget(round_out(range, parts_.config.granule_bytes));
  parts_.extensions.streams(lock).forget_borders(range);
}

void Planner::forget_all(const CacheLock& lock) noexcept {
  ++invalidations_;
  parts_.working_set.forget_all(lock);
  refusals_.clear();
  parts_.extensions.streams(lock).clear();
}

}  // namespace hydrant
