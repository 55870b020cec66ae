// Finds locked memory with few queries: one per mapping if the kernel describes mappings, otherwise by
// halves, down to single pages. The mlock registrar calls it before it locks.
#include "firehose/registrars/locked_ranges.hpp"

#include <algorithm>
#include <cerrno>

namespace hydrant {
namespace {

constexpr int kMaxMappings = 128;
// 80 us where mappings are few.
constexpr int kMaxQueries = 256;

bool is_locked(const MlockCalls& calls, MemoryRange range) noexcept {
  return calls.find_lock(range) == EBUSY;
}

}  // namespace

void LockedRanges::add(MemoryRange range, bool whole) noexcept {
  Part* last = n_ == 0 ? nullptr : &parts_[n_ - 1];
  const bool joins = last != nullptr && last->range.end() == range.addr && last->whole == whole;
  if (!joins && n_ < kMaxParts) {
    parts_[n_++] = {range, whole};
    return;
  }
  last->range.len = range.end() - last->range.addr;
  if (!joins) last->whole = false;
}

void LockedRanges::find(const MlockCalls& calls, MemoryRange range, size_t page_bytes) noexcept {
  for (int mappings = 0; range.len != 0 && is_locked(calls, range); ++mappings) {
    MemoryRange mapping;
    if (mappings == kMaxMappings || calls.mapping(range.addr, &mapping) != 0)
      return halve(calls, range, page_bytes, kMaxQueries);
    const MemoryRange part{range.addr, std::min(range.end(), mapping.end()) - range.addr};
    if (is_locked(calls, part)) {
      // Another thread may have locked a part of it since, and so divided the mapping.
      const bool same = calls.mapping(part.addr, &mapping) == 0 && mapping.covers(part);
      add(part, same);
    }
    range = {part.end(), range.end() - part.end()};
  }
}

// Divides `range` until its parts are known. Requires: at least one page of it is locked.
void LockedRanges::halve(const MlockCalls& calls, MemoryRange range, size_t page_bytes,
                         int queries) noexcept {
  const size_t half = range.len / 2 & ~(page_bytes - 1);
  if (half == 0 || queries < 2) return add(range, half == 0);
  const MemoryRange left{range.addr, half};
  const MemoryRange right{range.addr + half, range.len - half};
  const bool in_left = is_locked(calls, left);
  const bool in_right = is_locked(calls, right);
  queries -= 2;
  if (in_left) halve(calls, left, page_bytes, in_right ? queries / 2 : queries);
  if (in_right) halve(calls, right, page_bytes, in_left ? queries / 2 : queries);
}

}  // namespace hydrant
