#include "firehose/slot_arena.hpp"

#include "firehose/base/thread.hpp"

#include <sys/mman.h>

namespace hydrant {
namespace {

constexpr size_t kRetained = 240;
constexpr size_t kMostReleased = 256;

Mutex g_mutex;
SlotArena g_released[kMostReleased] HYDRANT_GUARDED_BY(g_mutex);  // oldest first
size_t g_released_count HYDRANT_GUARDED_BY(g_mutex) = 0;

void remove_locked(size_t i) noexcept HYDRANT_REQUIRES(g_mutex) {
  for (; i + 1 < g_released_count; ++i) g_released[i] = g_released[i + 1];
  --g_released_count;
}

}  // namespace

SlotArena acquire_slot_arena(size_t count) noexcept {
  {
    MutexLock lock(g_mutex);
    for (size_t i = 0; i + kRetained < g_released_count; ++i) {
      const SlotArena arena = g_released[i];
      if (arena.count != count) continue;
      remove_locked(i);
      return arena;
    }
  }
  void* p = mmap(nullptr, count * sizeof(RegionSlot), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return {};
  // Without it (kernels before 4.14) a raw clone() is not noticed; fork() is, by its handler.
  (void)madvise(p, count * sizeof(RegionSlot), MADV_WIPEONFORK);
  return {static_cast<RegionSlot*>(p), count};
}

void release_slot_arena(SlotArena arena) noexcept {
  if (arena.slots == nullptr) return;
  madvise(arena.slots, arena.count * sizeof(RegionSlot), MADV_DONTNEED);
  MutexLock lock(g_mutex);
  if (g_released_count == kMostReleased) {
    munmap(g_released[0].slots, g_released[0].count * sizeof(RegionSlot));
    remove_locked(0);
  }
  g_released[g_released_count++] = arena;
}

bool in_released_arena(const RegionSlot* slot) noexcept {
  MutexLock lock(g_mutex);
  for (size_t i = 0; i < g_released_count; ++i) {
    if (g_released[i].contains(slot)) return true;
  }
  return false;
}

void lock_slot_arenas() noexcept HYDRANT_NO_TSA { g_mutex.lock(); }
void unlock_slot_arenas() noexcept HYDRANT_NO_TSA { g_mutex.unlock(); }
void reset_slot_arenas_in_child() noexcept { g_mutex.reset_in_child(); }

}  // namespace hydrant
