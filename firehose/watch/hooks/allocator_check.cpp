// Tests with trial allocations whether libc's chunk headers are as expected, or whether another allocator
// maps through hooked symbols. hook_families_dynamic.cpp and hook_families_static.cpp call it when the hooks
// are loaded.
#include "firehose/watch/hooks/allocator_check.hpp"

#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <malloc.h>
#include <sys/mman.h>

namespace hydrant::hooks {
namespace {

// The last ranges that this thread got from the kernel through a hook during the trial: for the block, and
// for the allocator's own tables.
struct Seen {
  uintptr_t begin, len;
};
constexpr uint32_t kSeen = 16;
constinit Seen seen[kSeen] = {};
constinit uint32_t seen_count = 0;
constinit thread_local bool is_spying = false;
constinit decltype(RealCalls::mmap) spied_mmap = nullptr;
constinit decltype(RealCalls::sbrk) spied_sbrk = nullptr;

void note(const void* begin, uintptr_t len) {
  if (is_spying) seen[seen_count++ % kSeen] = {reinterpret_cast<uintptr_t>(begin), len};
}

bool was_seen(const void* memory) {
  const auto addr = reinterpret_cast<uintptr_t>(memory);
  for (const Seen& range : seen) {
    if (addr - range.begin < range.len) return true;
  }
  return false;
}

void* spying_mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset) {
  void* got = spied_mmap(addr, len, protection, flags, fd, offset);
  if (got != MAP_FAILED) note(got, len);
  return got;
}

void* spying_sbrk(intptr_t increment) {
  void* got = spied_sbrk(increment);
  if (increment > 0) note(got, static_cast<uintptr_t>(increment));
  return got;
}

constinit bool lacked_memory = false;

bool is_there(const void* memory) {
  if (memory == nullptr) lacked_memory = true;
  return memory != nullptr;
}

bool small_chunk_is_readable() {
  void* memory = real.malloc(100);
  if (!is_there(memory)) return false;
  const size_t word = chunk_word(memory);
  // A chunk in a heap also uses the size_t at the start of the next chunk.
  const bool right = (word & kChunkMapped) == 0 &&
                     (word & ~kChunkFlags) == malloc_usable_size(memory) + sizeof(size_t);
  real.free(memory);
  return right;
}

bool large_chunk_is_readable() {
  void* memory = real.malloc(kProbeBytes);
  if (!is_there(memory)) return false;
  const size_t word = chunk_word(memory);
  const size_t size = word & ~kChunkFlags;
  const size_t usable = malloc_usable_size(memory);
  const uintptr_t chunk = reinterpret_cast<uintptr_t>(memory) - kChunkHeaderBytes;
  bool right = size == usable + sizeof(size_t);  // mappings are switched off: it lies in the heap
  if (word & kChunkMapped) right = size == usable + kChunkHeaderBytes && chunk % 4096 == 0;
  real.free(memory);
  return right;
}

}  // namespace

bool libc_chunks_are_readable() {
  const bool right = small_chunk_is_readable() && large_chunk_is_readable();
  if (!right) __atomic_store_n(&libc_heap.readable, uint32_t{0}, __ATOMIC_RELEASE);
  return right;
}

bool allocator_maps_by_symbol(void* (*allocate)(size_t), void (*release)(void*)) {
  spied_mmap = real.mmap;
  spied_sbrk = real.sbrk;
  __atomic_store_n(&real.mmap, &spying_mmap, __ATOMIC_RELEASE);
  __atomic_store_n(&real.sbrk, &spying_sbrk, __ATOMIC_RELEASE);
  is_spying = true;
  void* memory = allocate(kProbeBytes);
  is_spying = false;
  const bool right = is_there(memory) && was_seen(memory);
  __atomic_store_n(&real.mmap, spied_mmap, __ATOMIC_RELEASE);
  __atomic_store_n(&real.sbrk, spied_sbrk, __ATOMIC_RELEASE);
  if (memory != nullptr) release(memory);
  return right;
}

bool allocator_check_lacked_memory() { return lacked_memory; }

}  // namespace hydrant::hooks
