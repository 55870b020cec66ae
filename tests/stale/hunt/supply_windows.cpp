// Maps and unmaps memory in slots of windows, with contention between threads.
#include "tests/stale/hunt/supply_windows.hpp"

#include "tests/stale/hunt/map_calls.hpp"

#include <ctime>
#include <sched.h>
#include <sys/mman.h>

namespace hydrant::stale {
namespace {

// How long an unmapping thread sometimes waits for a contender.
constexpr int kRivalSpins = 2000;
constexpr int kRivalTries = 50;

}  // namespace

bool WindowSupply::map_new(uintptr_t addr, size_t len, int flags, int file) {
  void* at = pointer(addr);
  void* memory = map_memory(at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, file);
  if (memory == at) return true;
  if (memory != MAP_FAILED)
    unmap_memory(memory, len);  // kernels before 4.17 take the address as a hint
  return false;
}

size_t WindowSupply::some_pages(Worker& worker) const {
  const size_t most = windows_->slot_bytes() / kPageBytes;
  return worker.random().between(1, worker.random().one_in(3) ? most : most / 4) * kPageBytes;
}

Range WindowSupply::some_part(Worker& worker, Range whole) {
  if (worker.random().one_in(3)) return whole;
  const size_t pages = whole.len / kPageBytes;
  const size_t from = worker.random().below(pages);
  return {whole.addr + from * kPageBytes, worker.random().between(1, pages - from) * kPageBytes};
}

uint32_t WindowSupply::map_somewhere(Worker& worker, size_t len,
                                     const std::function<bool(uintptr_t)>& map) {
  const Windows::Claim claim = windows_->claim(worker.random());
  if (claim.slot == Windows::kNone) return Windows::kNone;
  const uintptr_t addr = windows_->addr(claim.slot);
  if (!claim.contested) {
    if (map(addr)) return windows_->set_extent(claim.slot, len), claim.slot;
    windows_->give_up(claim.slot);  // other code has mapped memory there
    return Windows::kNone;
  }
  // The owner is before or inside munmap. This loop ends at the latest when munmap has returned.
  for (int tries = 0;; ++tries) {
    const bool vacated = windows_->vacated(claim.slot);
    if (map(addr)) {
      if (!vacated) worker.count_contest();
      windows_->set_extent(claim.slot, len);
      windows_->won(claim.slot);
      return claim.slot;
    }
    if (vacated) break;
    if (tries < kRivalTries) {
      sched_yield();
    } else {  // the owner's thread may need an idle processor to run
      const timespec pause{0, 20'000};
      nanosleep(&pause, nullptr);
    }
  }
  windows_->give_up(claim.slot);
  return Windows::kNone;
}

void WindowSupply::unmap_slot(Worker& worker, const Block& block,
                              const std::function<void()>& release) {
  if (block.slot == Windows::kNone) return release();
  const Windows::Leave leave = windows_->leave(block.slot);
  if (worker.random().one_in(4)) {
    for (int i = 0; i < kRivalSpins && !windows_->is_contested(leave); ++i) {
      __builtin_ia32_pause();
    }
  }
  release();
  windows_->left(leave);
}

}  // namespace hydrant::stale
