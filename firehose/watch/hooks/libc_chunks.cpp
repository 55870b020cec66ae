#include "firehose/watch/hooks/libc_chunks.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::hooks {
namespace {

constexpr uintptr_t kHeapBytes = uintptr_t{1} << HYDRANT_HOOKS_HEAP_SHIFT;

uintptr_t current_break() { return static_cast<uintptr_t>(syscall(SYS_brk, nullptr)); }

// The blocks of [addr, end) are heaps from now on; those that were not known are new memory as a whole.
// The bit comes after the sync: another thread that finds it set returns memory of the same block at once.
// What was cached before the bit, of memory that reached into the block, would be hit without a check: it is
// forgotten after the bit, and what is registered then is checked.
void note_heaps(uintptr_t addr, uintptr_t end) {
  if (end > kEndOfAddresses) return acquired(addr, end - addr);  // no bit for it
  const uintptr_t last = (end - 1) >> HYDRANT_HOOKS_HEAP_SHIFT;
  for (uintptr_t block = addr >> HYDRANT_HOOKS_HEAP_SHIFT; block <= last; ++block) {
    const uint64_t bit = uint64_t{1} << block % 64;
    if (__atomic_load_n(&heap_blocks[block / 64], __ATOMIC_ACQUIRE) & bit) continue;
    acquired(block << HYDRANT_HOOKS_HEAP_SHIFT, kHeapBytes);
    __atomic_fetch_or(&heap_blocks[block / 64], bit, __ATOMIC_ACQ_REL);
    forgotten_if_pinned(block << HYDRANT_HOOKS_HEAP_SHIFT, kHeapBytes);
  }
}

// The break has moved up. It is read before the sync: what is below it then, the sync covers.
void note_main_arena(uintptr_t chunk, size_t size) {
  const uintptr_t top = current_break();
  const uintptr_t end = chunk + size;
  if (chunk < libc_heap.low || end > top) {
    // Where the break cannot grow the main arena takes mappings. It never gives them back, but tells no more
    // of them than of heaps.
    note_heaps(chunk, end);
    acquired(chunk, size);
    return;
  }
  uintptr_t high = __atomic_load_n(&libc_heap.high, __ATOMIC_RELAXED);
  const uintptr_t first = high < chunk ? high : chunk;
  acquired(first, top - first);
  while (high < top && !__atomic_compare_exchange_n(&libc_heap.high, &high, top, true,
                                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

}  // namespace

constinit LibcHeap libc_heap = {};
constinit uint64_t heap_blocks[(kEndOfAddresses >> HYDRANT_HOOKS_HEAP_SHIFT) / 64] = {};

void note_libc_heap_start() {
  const KeepErrno keep;
  uintptr_t unknown = 0;
  const uintptr_t start = current_break();
  if (!__atomic_compare_exchange_n(&libc_heap.low, &unknown, start, false, __ATOMIC_RELEASE,
                                   __ATOMIC_RELAXED)) {
    return;
  }
  __atomic_store_n(&libc_heap.high, start, __ATOMIC_RELEASE);
  __atomic_store_n(&libc_heap.readable, uint32_t{1}, __ATOMIC_RELEASE);
}

void note_chunk(uintptr_t chunk, size_t word) {
  const size_t size = word & ~kChunkFlags;
  const KeepErrno keep;
  if (word & kChunkMapped) return acquired(chunk, size);
  if (word & kChunkOtherArena) return note_heaps(chunk, chunk + size);
  note_main_arena(chunk, size);
}

}  // namespace hydrant::hooks
