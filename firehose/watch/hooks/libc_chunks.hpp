// Finds out where a block from libc's malloc lies, and whether its memory is new.
//
// libc maps and unmaps by internal calls, which no hook sees. But the word below each block (size, and three
// flags) shows whether the block is a mapping of its own, lies in a heap of a secondary arena, or lies in the
// main arena, at the break. allocator_check.cpp tries each of these assumptions when the library is loaded;
// if one does not hold, the malloc family counts as not hooked.
//
// Heaps come and go inside libc, and a new heap may lie where an old one lay. Each heap that was seen is
// marked in its own memory: a heap without the mark is new, whatever was at its address before.
#pragma once

#include "firehose/watch/hooks/watched_call.hpp"

namespace hydrant::hooks {

inline constexpr size_t kChunkMapped = 2;      // a mapping of its own
inline constexpr size_t kChunkOtherArena = 4;  // in a heap, one of the blocks of 64 MiB
inline constexpr size_t kChunkFlags = 7;       // the lowest: the chunk before it is in use
inline constexpr size_t kChunkHeaderBytes = 16;

// Whether a heap has room for a mark: a word at its start that libc does not use.
// Not a scoped enumeration: Clang's atomic functions take none.
enum HeapMarks : uint32_t { kMarksUnknown, kMarksUsed, kMarksImpossible };

struct LibcHeap {
  uint32_t readable;  // nonzero: malloc is libc's and its chunks look as written above
  HeapMarks marks;    // decided with the first heap, and given up with one that looks otherwise
  uintptr_t low;      // the break before the first call of malloc
  uintptr_t high;     // memory of the main arena below this was synced after the kernel gave it
};
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit LibcHeap libc_heap;
inline constexpr uintptr_t kEndOfAddresses = uintptr_t{1} << 47;
inline constexpr size_t kBlockWords = (kEndOfAddresses >> HYDRANT_HOOKS_HEAP_SHIFT) / 64;
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit uint64_t heap_blocks[kBlockWords];
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit uint64_t libc_blocks[kBlockWords];

// The header that libc writes at the start of a heap (glibc 2.35 and later). Its last word is padding and
// holds our mark. The mark disappears with the heap: new memory reads as 0 there.
inline constexpr uintptr_t kHeapBytes = uintptr_t{1} << HYDRANT_HOOKS_HEAP_SHIFT;
struct HeapStart {
  uintptr_t arena, previous;
  size_t size, accessible, page;
  uint64_t mark;
};
inline constexpr uint64_t kHeapMark = 0x7061'6568'2d64'7968;
inline HeapStart* heap_start(uintptr_t chunk) {
  return reinterpret_cast<HeapStart*>(chunk & ~(kHeapBytes - 1));
}

// The end of the mapping of a block that has its own. libc rounds its length up to pages; up to glibc 2.42
// the chunk reaches to the end, since 2.43 to 16 bytes before it.
inline constexpr uintptr_t kSmallestPage = 4096;
inline uintptr_t mapping_end(uintptr_t chunk, size_t size) {
  return (chunk + size + kSmallestPage - 1) & ~(kSmallestPage - 1);
}

void note_libc_heap_start();

inline size_t chunk_word(const void* memory) { return *(static_cast<const size_t*>(memory) - 1); }

inline bool is_known_heap(uintptr_t addr) {
  if (__atomic_load_n(&libc_heap.marks, __ATOMIC_ACQUIRE) == kMarksUsed) [[likely]]
    return __atomic_load_n(&heap_start(addr)->mark, __ATOMIC_ACQUIRE) == kHeapMark;
  if (addr >= kEndOfAddresses) [[unlikely]]
    return false;
  const uintptr_t block = addr >> HYDRANT_HOOKS_HEAP_SHIFT;
  return __atomic_load_n(&heap_blocks[block / 64], __ATOMIC_RELAXED) >> block % 64 & 1;
}

// The mapping that libc unmaps or moves when it releases this block; empty if the block lies in a heap.
inline Released own_mapping(const void* memory) {
  if (memory == nullptr || libc_heap.readable == 0) return {};
  const size_t* words = static_cast<const size_t*>(memory);
  if ((words[-1] & kChunkMapped) == 0) [[likely]]
    return {};
  // An aligned block begins behind the start of its mapping; the word below the size is the distance, and
  // since glibc 2.43 its lowest bit marks huge pages.
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(memory) - kChunkHeaderBytes;
  const uintptr_t begin = chunk - (words[-2] & ~kChunkFlags);
  return {begin, mapping_end(chunk, words[-1] & ~kChunkFlags) - begin};
}

// Handles a block whose memory libc may have taken from the kernel since the last call.
void note_chunk(uintptr_t chunk, size_t word);

// Each allocating hook returns its block through this. Cost: a load of a word in a line that the program is
// about to use, and two compares.
inline void* handed_out(void* memory) {
  if (memory == nullptr || libc_heap.readable == 0) return memory;
  const size_t word = chunk_word(memory);
  const size_t size = word & ~kChunkFlags;
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(memory) - kChunkHeaderBytes;
  if ((word & (kChunkMapped | kChunkOtherArena)) == 0) {
    const uintptr_t high = __atomic_load_n(&libc_heap.high, __ATOMIC_RELAXED);
    // The chunk's last word belongs to the next chunk, so its end is where that begins.
    if (chunk >= libc_heap.low && chunk + size <= high) [[likely]]
      return memory;
  } else if ((word & kChunkMapped) == 0 && is_known_heap(chunk) &&
             is_known_heap(chunk + size - 1)) {
    return memory;
  }
  note_chunk(chunk, word);
  return memory;
}

// The same for a block that may have grown in place. If it is a mapping of its own, which was `before`, only
// the added part is new.
inline void* note_reuse(void* memory, Released before) {
  if (memory == nullptr || before.len == 0) return handed_out(memory);
  const Released now = own_mapping(memory);
  if (now.addr != before.addr) return handed_out(memory);
  if (now.len > before.len) acquired(before.addr + before.len, now.len - before.len);
  return memory;
}

}  // namespace hydrant::hooks
