// Finds out which heap of libc a block comes from, and syncs with the monitor before memory of a new heap is
// handed out. The hooks of malloc (malloc_hooks.cpp) call note_chunk() for blocks outside known heaps.
#include "firehose/watch/hooks/libc_chunks.hpp"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::hooks {
namespace {

uintptr_t current_break() { return static_cast<uintptr_t>(syscall(SYS_brk, nullptr)); }

void set_block(uint64_t* blocks, uintptr_t addr) {
  const uintptr_t block = addr >> HYDRANT_HOOKS_HEAP_SHIFT;
  const uint64_t bit = uint64_t{1} << block % 64;
  if ((__atomic_load_n(&blocks[block / 64], __ATOMIC_RELAXED) & bit) == 0)
    __atomic_fetch_or(&blocks[block / 64], bit, __ATOMIC_ACQ_REL);
}

// Without touching it: an invalid request has the kernel read a signal set there first.
bool is_readable(const HeapStart* start) {
  constexpr int kInvalid = -1;
  return syscall(SYS_rt_sigprocmask, kInvalid, start, nullptr, size_t{8}) == 0 || errno != EFAULT;
}

// Looks at the heap of a chunk that libc has just returned: does it begin with six words of which the
// sixth is unused? The arena lies behind them in its first heap, and every heap names it.
bool has_room_for_mark(const HeapStart* start, uintptr_t end) {
  if (!is_readable(start)) return false;
  const auto first = reinterpret_cast<uintptr_t>(start);
  const auto page = static_cast<size_t>(getpagesize());
  const auto whole_pages = [page](size_t n) { return n % page == 0 && n <= kHeapBytes; };
  return start->arena % kHeapBytes == sizeof(HeapStart) && start->previous % kHeapBytes == 0 &&
         whole_pages(start->size) && end - first <= start->size && whole_pages(start->accessible) &&
         start->size <= start->accessible && start->page == page && start->mark == 0;
}

bool leaves_marks(const HeapStart* start, uintptr_t end) {
  HeapMarks known = __atomic_load_n(&libc_heap.marks, __ATOMIC_ACQUIRE);
  if (known == HeapMarks::kUnknown) {
    const HeapMarks found =
        has_room_for_mark(start, end) ? HeapMarks::kUsed : HeapMarks::kImpossible;
    if (__atomic_compare_exchange_n(&libc_heap.marks, &known, found, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      known = found;
    }
  }
  return known == HeapMarks::kUsed;
}

// A heap that was not seen before: new memory as a whole. Two threads may get memory of it at once: each
// syncs. The mark comes after the sync: another thread that finds it returns memory of the heap at once.
void note_heap(HeapStart* start) {
  const auto first = reinterpret_cast<uintptr_t>(start);
  set_block(libc_blocks, first);
  acquired(first, kHeapBytes);
  __atomic_store_n(&start->mark, kHeapMark, __ATOMIC_RELEASE);
}

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
    set_block(libc_blocks, block << HYDRANT_HOOKS_HEAP_SHIFT);
    acquired(block << HYDRANT_HOOKS_HEAP_SHIFT, kHeapBytes);
    __atomic_fetch_or(&heap_blocks[block / 64], bit, __ATOMIC_ACQ_REL);
    forget_if_pinned(block << HYDRANT_HOOKS_HEAP_SHIFT, kHeapBytes);
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
  if (high < top) acquired(high, top - high);
  while (high < top && !__atomic_compare_exchange_n(&libc_heap.high, &high, top, true,
                                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

}  // namespace

constinit LibcHeap libc_heap = {};
constinit uint64_t heap_blocks[kBlockWords] = {};
constinit uint64_t libc_blocks[kBlockWords] = {};

void note_libc_heap_start() {
  const ErrnoGuard keep;
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
  const ErrnoGuard keep;
  if (word & kChunkMapped) return acquired(chunk, size);
  if (word & kChunkOtherArena) {
    HeapStart* start = heap_start(chunk);
    if (chunk + size <= kEndOfAddresses && leaves_marks(start, chunk + size))
      return note_heap(start);
    return note_heaps(chunk, chunk + size);
  }
  note_main_arena(chunk, size);
}

}  // namespace hydrant::hooks
