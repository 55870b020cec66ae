// Lists the memory of allocators. monitor_api.cpp adds and removes ranges, Monitor::cover() looks them up.
#include "firehose/watch/arena_ranges.hpp"

namespace hydrant {

bool ArenaRanges::add(MemoryRange range, bool kept) noexcept {
  if (!range.valid()) return false;
  for (uint32_t i = 0; i < kMax; ++i) {
    uintptr_t free = 0;
    // The claim's address covers nothing, so that no reader combines it with the length of another range.
    if (!ranges_[i].addr.compare_exchange_strong(free, UINTPTR_MAX, std::memory_order_acq_rel))
      continue;
    Arena& arena = ranges_[i];
    arena.version.fetch_add(1, std::memory_order_acq_rel);
    arena.len.store(range.len, std::memory_order_release);
    arena.kept.store(kept, std::memory_order_release);
    arena.addr.store(range.addr, std::memory_order_release);
    arena.version.fetch_add(1, std::memory_order_release);
    uint32_t high = high_.load(std::memory_order_relaxed);
    while (high < i + 1 && !high_.compare_exchange_weak(high, i + 1, std::memory_order_release)) {
    }
    return true;
  }
  return false;
}

void ArenaRanges::remove(MemoryRange range) noexcept {
  for (uint32_t i = 0; i < high_.load(std::memory_order_acquire); ++i) {
    if (ranges_[i].addr.load(std::memory_order_relaxed) == range.addr &&
        ranges_[i].len.load(std::memory_order_relaxed) == range.len) {
      ranges_[i].addr.store(0, std::memory_order_release);
      break;
    }
  }
}

// A pin that crosses two ranges of one arena is treated as any other memory.
bool ArenaRanges::cover(MemoryRange range, bool only_kept) const noexcept {
  for (uint32_t i = 0; i < high_.load(std::memory_order_acquire); ++i) {
    const Arena& arena = ranges_[i];
    const uint64_t version = arena.version.load(std::memory_order_acquire);
    const uintptr_t addr = arena.addr.load(std::memory_order_acquire);
    const size_t len = arena.len.load(std::memory_order_acquire);
    const bool kept = arena.kept.load(std::memory_order_acquire);
    if (addr == 0 || addr == UINTPTR_MAX || !MemoryRange{addr, len}.covers(range)) continue;
    if (only_kept && !kept) continue;
    // Another version means another range, which was not there when this call began: false is correct.
    if (version % 2 == 0 && arena.version.load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

}  // namespace hydrant
