// Counts overlapping pins in a map of intervals. The mlock registrar locks a page with its first pin and
// unlocks it with its last.
#include "firehose/registrars/page_pin_counts.hpp"

namespace hydrant {

// Splits the interval that contains `at`, so that `at` becomes a boundary. Returns the first interval that
// starts there or later.
PagePinCounts::Map::iterator PagePinCounts::split(uintptr_t at) noexcept {
  auto next = intervals_.lower_bound(at);
  if (next == intervals_.begin() || (next != intervals_.end() && next->first == at)) return next;
  auto before = std::prev(next);
  if (before->second.end <= at) return next;
  next = intervals_.emplace_hint(next, at, before->second);
  before->second.end = at;
  return next;
}

uint64_t PagePinCounts::add(MemoryRange range) noexcept {
  auto it = split(range.addr);
  split(range.end());
  for (uintptr_t at = range.addr; at < range.end();) {
    if (it != intervals_.end() && it->first == at) {
      ++it->second.count;
      it->second.kept = 0;
    } else {
      const uintptr_t gap_end =
          it == intervals_.end() ? range.end() : std::min(it->first, range.end());
      it = intervals_.emplace_hint(it, at, Interval{gap_end, 1});
    }
    at = it->second.end;
    ++it;
  }
  join(range);
  return reports_;
}

void PagePinCounts::keep(MemoryRange range) noexcept {
  const auto first = split(range.addr);
  const auto last = split(range.end());
  for (auto it = first; it != last; ++it) it->second.kept = 1;
  join(range);
}

void PagePinCounts::set_aside(Map::iterator first, Map::iterator last) noexcept {
  ++reports_;
  for (auto it = first; it != last; ++it) {
    if (it->second.count == 0) continue;  // all of its pins are older than its last report
    it->second.unmapped += it->second.count;
    it->second.count = 0;
    it->second.kept = 0;
    it->second.reported_at = reports_;
  }
}

bool PagePinCounts::note_unmapped(MemoryRange range) noexcept {
  const auto found = first_in(range);
  if (found == intervals_.end() || found->first >= range.end()) return true;
  if (!pool_->has(2)) return false;
  const auto first = split(range.addr);
  set_aside(first, split(range.end()));
  join(range);
  return true;
}

void PagePinCounts::must_note_unmapped(MemoryRange range) noexcept {
  (void)pool_->reserve(2);
  if (note_unmapped(range)) return;
  const auto found = first_in(range);
  set_aside(intervals_.find(found->first), intervals_.lower_bound(range.end()));
}

void PagePinCounts::remove_to(MemoryRange range, PagePinCounts* gone, uint64_t stamp) noexcept {
  Map::iterator first;
  Map::iterator last;
  if (pool_->reserve(kSpare) || pool_->has(2)) {
    first = split(range.addr);
    last = split(range.end());
  } else {
    first = intervals_.lower_bound(range.addr);
    last = first;
    while (last != intervals_.end() && last->second.end <= range.end()) ++last;
  }
  for (auto it = first; it != last;) {
    Interval& interval = it->second;
    const bool of_unmapped = interval.has_old(stamp);
    if (of_unmapped) {
      --interval.unmapped;
    } else {
      --interval.count;
    }
    if (interval.unmapped == 0) interval.reported_at = 0;
    if (interval.count != 0 || interval.unmapped != 0) {
      const bool is_last = !of_unmapped && interval.count == 0;
      if (is_last && interval.kept != 0) left_bytes_ += interval.end - it->first;
      if (is_last && interval.kept == 0 && pool_->reserve(1)) {
        gone->intervals_.emplace_hint(gone->intervals_.end(), it->first, Interval{interval.end, 1});
      }
      if (is_last) interval.kept = 0;
      ++it;
    } else if (of_unmapped || interval.kept != 0) {
      if (!of_unmapped) left_bytes_ += interval.end - it->first;
      it = intervals_.erase(it);
    } else {
      interval.count = 1;
      gone->intervals_.insert(gone->intervals_.end(), intervals_.extract(it++));
    }
  }
  join(range);
  if (gone->intervals_.size() > 1) gone->join(range);
}

// Joins equal neighbours within `range` and at its edges, which bounds the size of the map.
void PagePinCounts::join(MemoryRange range) noexcept {
  auto it = intervals_.lower_bound(range.addr);
  if (it != intervals_.begin()) --it;
  while (it != intervals_.end() && it->first <= range.end()) {
    const auto next = std::next(it);
    if (next == intervals_.end()) break;
    if (it->second.end == next->first && it->second.is_like(next->second)) {
      it->second.end = next->second.end;
      intervals_.erase(next);
    } else {
      it = next;
    }
  }
}

bool PagePinCounts::covers(MemoryRange range) const noexcept {
  auto it = intervals_.upper_bound(range.addr);
  if (it == intervals_.begin()) return false;
  --it;
  uintptr_t at = range.addr;
  while (it != intervals_.end() && it->first <= at && it->second.end > at) {
    at = it->second.end;
    if (at >= range.end()) return true;
    ++it;
  }
  return false;
}

}  // namespace hydrant
