// Implements the slow half of a watched call: the calls to the monitor when memory that may be pinned is
// mapped, replaced or released. The inline half is in watched_call.hpp; every hook uses it.
#include "firehose/watch/hooks/watched_call.hpp"

#include "firehose/base/raw_memory.hpp"

#include <cerrno>

namespace hydrant::hooks {
namespace {

// If a range has more blocks, they are not tested one by one: a sync costs no more.
constexpr uintptr_t kMaxBlocks = 4096;
constexpr uintptr_t kEndOfBlocks = uintptr_t{1} << (47 - HYDRANT_MONITOR_BLOCK_SHIFT);

bool any_set(const uint64_t* bits, uintptr_t first, uintptr_t last) {
  for (uintptr_t word = first / 64; word <= last / 64; ++word) {
    uint64_t mask = ~uint64_t{0};
    if (word == first / 64) mask &= ~uint64_t{0} << first % 64;
    if (word == last / 64) mask &= ~uint64_t{0} >> (63 - last % 64);
    if (__atomic_load_n(&bits[word], __ATOMIC_RELAXED) & mask) return true;
  }
  return false;
}

bool may_be_pinned(const uint64_t* blocks, uintptr_t addr, size_t len) {
  if (len == 0) return false;
  const uintptr_t first = addr >> HYDRANT_MONITOR_BLOCK_SHIFT;
  const uintptr_t last = (addr + len - 1) >> HYDRANT_MONITOR_BLOCK_SHIFT;
  return last - first >= kMaxBlocks || last >= kEndOfBlocks || any_set(blocks, first, last);
}

}  // namespace

ErrnoGuard::ErrnoGuard() : saved_(errno) {}
ErrnoGuard::~ErrnoGuard() { errno = saved_; }

void* take_private_page() {
  const ErrnoGuard keep;
  return raw_map(kPrivatePageBytes);
}

void drop_private_page(void* page) {
  const ErrnoGuard keep;
  raw_unmap(page, kPrivatePageBytes);
}

void settle(const hydrant_monitor_t* watching) {
  const ErrnoGuard keep;
  watching->settle();
}

void sync(const hydrant_monitor_t* watching, uintptr_t addr, size_t len) {
  const ErrnoGuard keep;
  constexpr size_t kNeeded = offsetof(hydrant_monitor_t, sync_range) + sizeof watching->sync_range;
  if (len != SIZE_MAX && watching->size >= kNeeded) return watching->sync_range(addr, len);
  watching->sync();
}

void check_acquired(const hydrant_monitor_t* watching, const uint64_t* blocks, uintptr_t addr,
                    size_t len) {
  if (may_be_pinned(blocks, addr, len)) sync(watching, addr, len);
}

void forget_if_pinned(uintptr_t addr, size_t len) {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  const uint64_t* blocks = __atomic_load_n(&watching->blocks, __ATOMIC_ACQUIRE);
  if (blocks == nullptr || !may_be_pinned(blocks, addr, len)) return;
  const ErrnoGuard keep;
  watching->invalidate(addr, len);
}

void replaced(const void* addr, size_t len) {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  const ErrnoGuard keep;
  const auto first = reinterpret_cast<uintptr_t>(addr);
  constexpr size_t kNeeded = offsetof(hydrant_monitor_t, replaced) + sizeof watching->replaced;
  if (watching->size >= kNeeded) return watching->replaced(first, len);
  watching->invalidate(first, len);
}

void file_changes() {
  const hydrant_monitor_t* watching = monitor();
  if (watching == nullptr) return;
  const ErrnoGuard keep;
  watching->files_changed();
}

}  // namespace hydrant::hooks
