// What a miss registers: the request, with its neighbours, with what its stream will ask for next, or with
// the rest of its huge pages.
#include "firehose/access_classes.hpp"
#include "firehose/domain.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kJoinQuarter = 4;  // see join_neighbour_locked()
constexpr int kMostTrims = 8;
// What a slow call sees of the use of a region is known so exactly: a thread's table has blocks of this size.
constexpr uint64_t kSeenBytes = 65536;

MemoryRange union_of(MemoryRange a, MemoryRange b) {
  const uintptr_t addr = std::min(a.addr, b.addr);
  return {addr, std::max(a.last(), b.last()) - addr + 1};
}

}  // namespace

// A neighbour that overlaps or touches joins in if it is no longer than what it joins, or once requests that
// reached over its ends add up to a quarter of it: memory used piece by piece is then registered again a
// bounded number of times, whatever the pieces, and neighbours that are used across their border do
// become one.
bool Domain::join_neighbour_locked(RegionIndex neighbour, size_t most, Plan* plan) {
  RegionInfo& info = infos_[neighbour];
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

// A request over the border of two regions that cover it together joins them at once if they are of like
// size: a stream leaves borders that nobody chose. What is joined grows by a quarter at least, so that a
// byte is registered again a bounded number of times.
bool Domain::bridge_locked(Plan* plan) {
  const RegionIndex a = find_locked({plan->range.addr, 1}, Access::kLocalRead);
  if (a == kNoRegion || infos_[a].prepinned) return false;
  const RegionIndex b = find_locked({plan->range.last(), 1}, Access::kLocalRead);
  if (b == kNoRegion || infos_[b].prepinned || a == b) return false;
  const MemoryRange low = infos_[a].range;
  const MemoryRange high = infos_[b].range;
  const MemoryRange whole = union_of(low, high);
  // (No longer than the request: then its own rights will do.)
  if (low.end() < high.addr || whole == plan->range || whole.len > config_.merge_bytes ||
      whole.len > config_.max_region_bytes ||
      std::min(low.len, high.len) < std::max(low.len, high.len) / kJoinQuarter) {
    return false;
  }
  plan->range = whole;
  plan->access = plan->access | infos_[a].access | infos_[b].access;
  return true;
}

void Domain::extend_locked(Plan* plan) {
  if (bridge_locked(plan)) return;
  const size_t most = std::min(config_.merge_bytes, config_.max_region_bytes);
  for (bool grown = true; grown;) {
    grown = false;
    uint32_t classes = classes_.load(std::memory_order_relaxed);
    while (classes != 0) {
      const uint32_t c = take_lowest(&classes);
      const uintptr_t addr = plan->range.addr;
      const RegionIndex before = tables_[c]->any_overlap(addr - (addr != 0), addr);
      if (before != kNoRegion && join_neighbour_locked(before, most, plan)) grown = true;
      const uintptr_t end = plan->range.end();
      const RegionIndex after = tables_[c]->any_overlap(end - 1, end);
      if (after != kNoRegion && join_neighbour_locked(after, most, plan)) grown = true;
    }
  }
}

// The part of `range` that is not registered yet, and joins on to the request.
MemoryRange Domain::without_registered_locked(MemoryRange pages, MemoryRange range) {
  const bool down = range.addr < pages.addr;
  bool trimmed = true;
  for (int i = 0; trimmed && range != pages; ++i) {
    if (i == kMostTrims) return pages;
    trimmed = false;
    uint32_t classes = classes_.load(std::memory_order_relaxed);
    while (classes != 0 && range != pages) {
      const PinTable& table = *tables_[take_lowest(&classes)];
      const RegionIndex r = down ? table.any_overlap(range.addr, pages.addr - 1)
                                 : table.any_overlap(pages.end(), range.last());
      if (r == kNoRegion) continue;
      const MemoryRange there = infos_[r].range;
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
bool Domain::follow_stream_locked(Want& want, Plan* plan) {
  if (config_.stream_bytes == 0) return false;
  if (!want.noted) {
    want.noted = true;
    const size_t most = std::min<uint64_t>(config_.stream_bytes, budget_ / 8);
    want.advice = streams_.note_miss(want.pages, most, streams_.has_borders() ? now_ns() : 0);
    if (want.advice.passed != 0) {
      const RegionIndex r = find_locked({want.advice.passed, 1}, Access::kLocalRead);
      if (r != kNoRegion) slot(r).unreached.store(0, std::memory_order_relaxed);
    }
  }
  if (want.advice.range == want.pages) return false;
  const MemoryRange range = without_registered_locked(want.pages, want.advice.range);
  if (range == want.pages || known_refused_locked(range, plan->access)) return false;
  plan->range = range;
  plan->stream = true;
  plan->down = want.advice.down;
  return true;
}

void Domain::plan_locked(Want& want, Plan* plan) {
  plan->range = want.pages;
  plan->stream = plan->huge_pages = plan->once = false;
  plan->extra_bytes = 0;
  plan->access = want.plain ? want.need : want.need | config_.eager;
  if (known_refused_locked(plan->range, plan->access)) plan->access = want.need;
  const bool may_extend = config_.mode == HYDRANT_MODE_REGION && !want.exact &&
                          want.prepaid == nullptr && config_.watch != HYDRANT_WATCH_NONE &&
                          !want.restless &&
                          (want.effort != Effort::kRegisterSparingly || charged_ <= budget_ / 2);
  // Nothing is joined where that would need an eviction, and then the search is not worth its time.
  const bool room = charged_ + plan->range.len <= budget_;
  if (may_extend && !follow_stream_locked(want, plan) && room &&
      plan->range.len < config_.merge_bytes) {
    const Access alone = plan->access;
    extend_locked(plan);
    // claim_locked() finds out for certain.
    if (charged_ + plan->range.len > budget_) {
      plan->range = want.pages;
      plan->access = alone;
    }
  }
}

// A stream stays in the mapping of its request, where the kernel says cheaply how far that goes: behind it
// there may be a hole, other rights, or memory of somebody who has nothing to do with this.
void Domain::keep_to_mapping(const Want& want, Plan* plan) const noexcept {
  if (!plan->stream) return;
  Mapping mapping{};
  const uintptr_t edge = plan->down ? want.pages.addr : want.pages.last();
  if (mappings_.find_quickly(edge, &mapping)) {
    if (plan->down) {
      const uintptr_t from = std::max(plan->range.addr, mapping.range.addr);
      plan->range = {from, plan->range.end() - from};
    } else {
      plan->range.len = std::min(plan->range.end(), mapping.range.end()) - plan->range.addr;
    }
  }
  plan->stream = plan->range != want.pages;
  plan->extra_bytes = plan->range.len - want.pages.len;
}

// Where the account is charged for whole huge pages anyway and pinning them whole costs less than a few
// parts. A block that is one page now has one mapping and one set of rights.
void Domain::widen_to_huge_pages(const Want& want, Plan* plan) const noexcept {
  const size_t block = registrar_->traits().block_bytes;
  if (block == 0 || config_.stream_bytes == 0 || want.exact || want.prepaid != nullptr ||
      want.restless || plan->charge == plan->range.len) {
    return;
  }
  const MemoryRange whole = round_out(plan->range, block);
  if (plan->charge != whole.len || whole.len > config_.max_region_bytes) return;
  plan->huge_pages = plan->range == want.pages;
  plan->range = whole;
}

bool Domain::is_beyond_need(const Want& want, const Plan& plan) noexcept {
  if (plan.range == want.pages || plan.huge_pages) return false;
  // A long stream's own misses would cost others as much.
  return !(plan.stream && want.advice.earned);
}

void Domain::note_reached(RegionSlot& s, MemoryRange pages) const noexcept {
  const uint32_t before = s.unreached.load(std::memory_order_relaxed);
  if (before == 0) return;
  const uint32_t below = before & kUnreachedBelow;
  const uintptr_t first = s.addr.load(std::memory_order_relaxed);
  const size_t rest =
      below != 0 ? pages.addr - first : first + s.len.load(std::memory_order_relaxed) - pages.end();
  const auto now = static_cast<uint32_t>(rest / config_.granule_bytes);
  if (now >= (before & ~kUnreachedBelow)) return;
  s.unreached.store(now == 0 ? 0 : now | below, std::memory_order_relaxed);
}

void Domain::enter_extension_locked(const Plan& plan) {
  infos_[plan.region].extended = true;
  const auto granules = static_cast<uint32_t>(plan.extra_bytes / config_.granule_bytes);
  slot(plan.region)
      .unreached.store(granules | (plan.down ? kUnreachedBelow : 0), std::memory_order_relaxed);
  totals_.extended_bytes += plan.extra_bytes;
  streams_.note_granted(plan.range, plan.down);
}

// An extended region is on its way out: was it worth it?
void Domain::judge_extension_locked(RegionIndex region) {
  const uint32_t unreached = slot(region).unreached.load(std::memory_order_relaxed);
  const uint64_t bytes = uint64_t{unreached & ~kUnreachedBelow} * config_.granule_bytes;
  totals_.wasted_bytes += bytes;
  streams_.note_outcome(bytes >= std::max<uint64_t>(kSeenBytes, infos_[region].range.len / 4));
}

// What was planned for a stream is not registered.
void Domain::give_up_extension_locked(const Want& want, const Plan& plan, bool refused) {
  if (!want.noted) return;
  if (plan.stream && refused) {
    streams_.note_refused(want.pages, plan.range, now_ns());
  } else {
    streams_.note_cut(want.pages, want.pages);
  }
}

void Domain::open_mappings() noexcept {
  mappings_.close();
  if (config_.stream_bytes != 0 && !config_.distant) (void)mappings_.open();
}

}  // namespace hydrant
