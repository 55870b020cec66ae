// What the memory that libc's malloc returns says of where it comes from.
//
// libc maps and unmaps inside, past every symbol; but the word below each block (size, and three flags) tells
// whether the block is a mapping of its own, lies in the heap of another arena than the main one, or in the
// main arena, that is at the break. Checked with glibc 2.36; allocator_check.cpp tries it when the library is
// loaded, and the whole family is given up where it does not hold.
#pragma once

#include "firehose/watch/hooks/watched_call.hpp"

namespace hydrant::hooks {

inline constexpr size_t kChunkMapped = 2;      // a mapping of its own
inline constexpr size_t kChunkOtherArena = 4;  // in a heap, one of the blocks of 64 MiB
inline constexpr size_t kChunkFlags = 7;       // the lowest says that the chunk before it is in use
inline constexpr size_t kChunkHeaderBytes = 16;

struct LibcHeap {
  uint32_t readable;  // nonzero: malloc is libc's and its chunks look as written above
  uintptr_t low;      // the break before the first call of malloc
  uintptr_t high;     // memory of the main arena below this was synced after the kernel gave it
};
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit LibcHeap libc_heap;
inline constexpr uintptr_t kEndOfAddresses = uintptr_t{1} << 47;
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit uint64_t heap_blocks[(kEndOfAddresses >> HYDRANT_HOOKS_HEAP_SHIFT) / 64];

void note_libc_heap_start();

inline size_t chunk_word(const void* memory) { return *(static_cast<const size_t*>(memory) - 1); }

inline bool is_known_heap(uintptr_t addr) {
  if (addr >= kEndOfAddresses) [[unlikely]]
    return false;
  const uintptr_t block = addr >> HYDRANT_HOOKS_HEAP_SHIFT;
  return __atomic_load_n(&heap_blocks[block / 64], __ATOMIC_RELAXED) >> block % 64 & 1;
}

// Memory that libc has taken from the kernel since the last look, or that may be.
void note_chunk(uintptr_t chunk, size_t word);

// Everything that an allocating hook returns goes through this. Cost: a load of a word that the program is
// about to share a line with, and two compares.
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

}  // namespace hydrant::hooks
