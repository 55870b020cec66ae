// Finds out which heap of libc a block comes from, and syncs with the monitor before memory of a new heap is
// handed out. The hooks of malloc (malloc_hooks.cpp) call note_chunk() for blocks outside known heaps.
#include "firehose/watch/hooks/libc_chunks.hpp"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::hooks {
namespace {

uintptr_t current_break() { return static_cast<uintptr_t>(syscall(SYS_brk, nullptr)); }

// NOLINTNEXTLINE(readability-non-const-parameter): written by __atomic_fetch_or()
void set_block(uint64_t* blocks, uintptr_t addr) {
  const uintptr_t block = addr >> HYDRANT_HOOKS_HEAP_SHIFT;
  const uint64_t bit = uint64_t{1} << block % 64;
  if ((__atomic_load_n(&blocks[block / 64], __ATOMIC_RELAXED) & bit) == 0)
    __atomic_fetch_or(&blocks[block / 64], bit, __ATOMIC_ACQ_REL);
}

// Does not touch the memory: an invalid request makes the kernel read a signal set there before it fails.
bool is_readable(const HeapStart* start) {
  constexpr int kInvalid = -1;
  return syscall(SYS_rt_sigprocmask, kInvalid, start, nullptr, size_t{8}) == 0 || errno != EFAULT;
}

// True if all address space behind the accessible part of a heap of 64 MiB is reserved: mapped, and not
// readable. Heaps for huge pages are shorter (glibc.malloc.hugetlb=2: 8 MiB), and one in eight of them begins
// where one of 64 MiB could.
bool is_reserved(const HeapStart* start) {
  constexpr uintptr_t kStep = uintptr_t{1} << 20;
  const auto first = reinterpret_cast<uintptr_t>(start);
  for (uintptr_t at = first + kHeapBytes - kStep; at >= first + start->accessible; at -= kStep) {
    unsigned char resident = 0;
    if (is_readable(reinterpret_cast<const HeapStart*>(at)) ||
        syscall(SYS_mincore, at, kSmallestPage, &resident) != 0)
      return false;
  }
  return true;
}

// True if the heap of a chunk that libc has just returned begins with six words of which the sixth is unused.
// The arena lies behind them in its first heap, and every heap points to it.
bool has_room_for_mark(const HeapStart* start, uintptr_t end) {
  if (!is_readable(start)) return false;
  const auto first = reinterpret_cast<uintptr_t>(start);
  const auto page = static_cast<size_t>(getpagesize());
  const auto whole_pages = [page](size_t n) { return n % page == 0 && n <= kHeapBytes; };
  // In this order: another thread may let the heap grow, which changes the second first.
  const size_t size = __atomic_load_n(&start->size, __ATOMIC_ACQUIRE);
  const size_t accessible = __atomic_load_n(&start->accessible, __ATOMIC_ACQUIRE);
  // Since glibc 2.43 with glibc.malloc.hugetlb=1 that of a huge page.
  const size_t heap_page = start->page;
  const bool is_page_size =
      heap_page >= page && (heap_page & (heap_page - 1)) == 0 && size % heap_page == 0;
  return start->arena % kHeapBytes == sizeof(HeapStart) && start->previous % kHeapBytes == 0 &&
         whole_pages(size) && end - first <= size && whole_pages(accessible) &&
         size <= accessible && is_page_size && (start->mark == 0 || start->mark == kHeapMark);
}

// Looks at each heap before it is marked. The first that looks otherwise ends the marks of all: from then on
// a heap whose bit is not set counts as new.
bool leaves_marks(const HeapStart* start, uintptr_t end) {
  HeapMarks known = __atomic_load_n(&libc_heap.marks, __ATOMIC_ACQUIRE);
  if (known == kMarksImpossible) return false;
  const bool has_room =
      has_room_for_mark(start, end) && (known == kMarksUsed || is_reserved(start));
  if (!has_room) {
    __atomic_store_n(&libc_heap.marks, kMarksImpossible, __ATOMIC_RELEASE);
    return false;
  }
  return __atomic_compare_exchange_n(&libc_heap.marks, &known, kMarksUsed, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) ||
         known == kMarksUsed;
}

// Notes a heap that was not seen before: all of it is new memory. Two threads may get memory of it at once:
// each syncs. The mark comes after the sync, because another thread that finds it returns memory of the heap
// at once.
void note_heap(HeapStart* start) {
  const auto first = reinterpret_cast<uintptr_t>(start);
  set_block(libc_blocks, first);
  acquired(first, kHeapBytes);
  __atomic_store_n(&start->mark, kHeapMark, __ATOMIC_RELEASE);
}

// Notes the blocks of [addr, end) as heaps; a block that was not known is new memory as a whole. The bit is
// set after the sync, because another thread that finds it returns memory of the block at once. A region that
// was cached before, and reaches into the block, would be hit without a check. It is forgotten after the bit
// is set; later registrations there are checked.
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

// Notes that the break has moved up. The break is read before the sync, which so covers all memory below it.
void note_main_arena(uintptr_t chunk, size_t size) {
  const uintptr_t top = current_break();
  const uintptr_t end = chunk + size;
  if (chunk < libc_heap.low || end > top) {
    // If the break cannot grow, the main arena takes mappings. It never unmaps them, but the hooks see them
    // no better than heaps.
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
  if (word & kChunkMapped) return acquired(chunk, mapping_end(chunk, size) - chunk);
  if (word & kChunkOtherArena) {
    HeapStart* start = heap_start(chunk);
    if (chunk + size <= kEndOfAddresses && leaves_marks(start, chunk + size))
      return note_heap(start);
    return note_heaps(chunk, chunk + size);
  }
  note_main_arena(chunk, size);
}

}  // namespace hydrant::hooks
