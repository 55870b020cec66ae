// Maps arenas of region slots, keeps released ones readable, and reuses the oldest of them. A domain takes
// and releases its arena here (cache/domain.cpp); hit_path.cpp queries it at late releases.
#include "firehose/hit/slot_arena.hpp"

#include "firehose/base/raw_memory.hpp"
#include "firehose/base/table_space.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <bit>
#include <sys/resource.h>

namespace hydrant {
namespace {

constexpr size_t kRetained = 240;
constexpr size_t kSmallest = 65536 / sizeof(RegionSlot);  // a multiple of every page size there is
// Maximum of released arenas. Whole ones: kRetained of each of some 20 sizes, and what 64 live domains
// release at once. The rest is for arenas whose unused part was cut off.
constexpr size_t kMaxReleased = 16384;
// The divisor of RLIMIT_AS, if that is limited: the rest is left to the program.
constexpr size_t kShareOfLimit = 8;

struct Released {
  SlotArena arena;
  size_t used;  // slots that pins may point to
};

Mutex g_mutex;
Released g_released[kMaxReleased] HYDRANT_GUARDED_BY(g_mutex);  // oldest first
size_t g_released_count HYDRANT_GUARDED_BY(g_mutex) = 0;
size_t g_released_bytes HYDRANT_GUARDED_BY(g_mutex) = 0;

constexpr size_t bytes_of(size_t slots) { return slots * sizeof(RegionSlot); }

SlotArena take_locked(size_t i) noexcept HYDRANT_REQUIRES(g_mutex) {
  const SlotArena arena = g_released[i].arena;
  std::copy(g_released + i + 1, g_released + g_released_count, g_released + i);
  --g_released_count;
  g_released_bytes -= bytes_of(arena.count);
  return arena;
}

// Reuses the oldest arena of exactly this size, if enough younger ones exist.
SlotArena reuse_old_locked(size_t count) noexcept HYDRANT_REQUIRES(g_mutex) {
  size_t oldest = g_released_count;
  size_t same = 0;
  for (size_t i = g_released_count; i-- > 0;) {
    if (g_released[i].arena.count != count) continue;
    oldest = i;
    ++same;
  }
  return same > kRetained ? take_locked(oldest) : SlotArena{};
}

// Reuses the oldest arena that is large enough.
SlotArena reuse_any_locked(size_t count) noexcept HYDRANT_REQUIRES(g_mutex) {
  for (size_t i = 0; i < g_released_count; ++i) {
    if (g_released[i].arena.count >= count) return take_locked(i);
  }
  return {};
}

// Keeps the part of each arena that pins may point to, and the null slot, which the hit contexts of threads
// point to.
void cut_off_unused_locked() noexcept HYDRANT_REQUIRES(g_mutex) {
  for (size_t i = 0; i < g_released_count; ++i) {
    SlotArena& arena = g_released[i].arena;
    const size_t kept =
        (std::max<size_t>(g_released[i].used, 1) + kSmallest - 1) / kSmallest * kSmallest;
    if (kept >= arena.count) continue;
    g_table_space.shrink(arena.slots, bytes_of(arena.count), bytes_of(kept));
    g_released_bytes -= bytes_of(arena.count - kept);
    arena.count = kept;
  }
}

}  // namespace

size_t arena_share_bytes() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return static_cast<size_t>(limit.rlim_cur / kShareOfLimit);
}

SlotArena acquire_slot_arena(size_t count) noexcept {
  // Few sizes, so that an arena fits the next domain, too.
  count = std::bit_ceil(std::max(count, kSmallest));
  const auto map = [count] {
    return static_cast<RegionSlot*>(g_table_space.take_apart(bytes_of(count)));
  };
  RegionSlot* slots = nullptr;
  {
    MutexLock lock(g_mutex);
    SlotArena old = reuse_old_locked(count);
    const bool is_short = old.slots == nullptr && g_released_bytes > arena_share_bytes();
    if (is_short) old = reuse_any_locked(count);
    if (old.slots == nullptr && !is_short) slots = map();
    if (old.slots == nullptr && slots == nullptr) {
      old = reuse_any_locked(count);
      if (old.slots == nullptr) cut_off_unused_locked();
    }
    if (old.slots != nullptr) return old;
  }
  if (slots == nullptr) slots = map();
  if (slots == nullptr) return {};
  // Without it (kernels before 4.14) a raw clone() is not noticed; fork() is, by its handler.
  (void)madvise(slots, bytes_of(count), MADV_WIPEONFORK);
  return {slots, count};
}

void release_slot_arena(SlotArena arena, size_t used) noexcept {
  if (arena.slots == nullptr) return;
  raw_clear(arena.slots, bytes_of(arena.count));
  MutexLock lock(g_mutex);
  // Only repeated cutting off leads to so many: such an arena stays mapped, and a late release of its pins
  // returns BAD_ARG.
  if (g_released_count == kMaxReleased) return;
  g_released[g_released_count++] = {arena, std::min(used, arena.count)};
  g_released_bytes += bytes_of(arena.count);
}

bool in_released_arena(const RegionSlot* slot) noexcept {
  MutexLock lock(g_mutex);
  for (size_t i = 0; i < g_released_count; ++i) {
    if (g_released[i].arena.contains(slot)) return true;
  }
  return false;
}

void lock_slot_arenas() noexcept HYDRANT_NO_TSA { g_mutex.lock(); }
void unlock_slot_arenas() noexcept HYDRANT_NO_TSA { g_mutex.unlock(); }
void reset_slot_arenas_in_child() noexcept { g_mutex.reset_in_child(); }

}  // namespace hydrant
