// Tries with allocations whether each assumption about libc's chunks holds, or whether another allocator maps
// through hooked symbols. hook_families_dynamic.cpp and hook_families_static.cpp call it when the hooks
// are loaded.
#include "firehose/watch/hooks/allocator_check.hpp"

#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <cerrno>
#include <cstdio>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" const char* gnu_get_libc_version(void)
    __attribute__((weak));  // absent from other C libraries

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

constexpr char kNoMemory[] =
    "no memory was left at the start to try what the hooks see of the program's malloc; raise the "
    "limit on address space (ulimit -v)";
constexpr char kPastTheHooks[] =
    "the program's malloc takes memory from the kernel past the hooks; let it be libc's or "
    "jemalloc's";

// The assumptions about libc's chunks, as they read behind "it is not so that".
constexpr char kSmallChunks[] = "the word below a small block is its size";
constexpr char kHeapChunks[] = "the word below a large block in a heap is its size";
constexpr char kMappedChunks[] =
    "the words below a block that is a mapping of its own say where that begins and ends";

// Whether there is memory at the page, as far as the kernel says: a refused call leaves both false.
struct Mapped {
  explicit Mapped(uintptr_t page) {
    unsigned char resident = 0;
    is = syscall(SYS_mincore, page, kSmallestPage, &resident) == 0;
    is_not = !is && errno == ENOMEM;
  }
  bool is, is_not;
};

const char* small_chunk_fault() {
  void* memory = real.malloc(100);
  if (memory == nullptr) return kNoMemory;
  const size_t word = chunk_word(memory);
  // A chunk in a heap also uses the size_t at the start of the next chunk.
  const bool right = (word & kChunkMapped) == 0 &&
                     (word & ~kChunkFlags) == malloc_usable_size(memory) + sizeof(size_t);
  real.free(memory);
  return right ? nullptr : kSmallChunks;
}

// Whether `mapping` is what libc unmaps when it releases `memory`, which it does here: no page less, no page
// of a neighbour that was mapped.
bool releases_exactly(Released mapping, void* memory) {
  const uintptr_t end = mapping.addr + mapping.len;
  const Mapped first(mapping.addr);
  const Mapped last(end - kSmallestPage);
  const Mapped before(mapping.addr - kSmallestPage);
  const Mapped behind(end);
  real.free(memory);
  return !first.is_not && !last.is_not && !Mapped(mapping.addr).is &&
         !Mapped(end - kSmallestPage).is &&
         (before.is_not || !Mapped(mapping.addr - kSmallestPage).is_not) &&
         (behind.is_not || !Mapped(end).is_not);
}

const char* large_chunk_fault(size_t alignment) {
  void* memory = real.memalign(alignment, kProbeBytes);
  if (memory == nullptr) return kNoMemory;
  const size_t word = chunk_word(memory);
  const size_t usable = malloc_usable_size(memory);
  if ((word & kChunkMapped) == 0) {  // mappings are switched off
    real.free(memory);
    return (word & ~kChunkFlags) == usable + sizeof(size_t) ? nullptr : kHeapChunks;
  }
  const Released mapping = own_mapping(memory);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t rest = mapping.addr + mapping.len - (begin + usable);
  const bool is_around = mapping.addr % kSmallestPage == 0 && begin > mapping.addr &&
                         begin - mapping.addr <= alignment + kChunkHeaderBytes &&
                         rest < kSmallestPage;
  if (!is_around) real.free(memory);
  return is_around && releases_exactly(mapping, memory) ? nullptr : kMappedChunks;
}

const char* chunk_fault() {
  if (const char* fault = small_chunk_fault()) return fault;
  if (const char* fault = large_chunk_fault(kChunkHeaderBytes)) return fault;
  return large_chunk_fault(size_t{1} << 20);
}

}  // namespace

const char* fault_of_libc_chunks() {
  const char* const fault = chunk_fault();
  if (fault == nullptr) return nullptr;
  __atomic_store_n(&libc_heap.readable, uint32_t{0}, __ATOMIC_RELEASE);
  if (fault == kNoMemory) return fault;
  constinit static char text[400] = "";
  (void)snprintf(
      text, sizeof text,
      "the malloc of this libc (version %s) is not known: it is not so that %s; report it, and "
      "meanwhile start the program with LD_PRELOAD=libjemalloc.so.2",
      gnu_get_libc_version != nullptr ? gnu_get_libc_version() : "unknown", fault);
  return text;
}

const char* fault_of_allocator(void* (*allocate)(size_t), void (*release)(void*)) {
  spied_mmap = real.mmap;
  spied_sbrk = real.sbrk;
  __atomic_store_n(&real.mmap, &spying_mmap, __ATOMIC_RELEASE);
  __atomic_store_n(&real.sbrk, &spying_sbrk, __ATOMIC_RELEASE);
  is_spying = true;
  void* memory = allocate(kProbeBytes);
  is_spying = false;
  const bool right = memory != nullptr && was_seen(memory);
  __atomic_store_n(&real.mmap, spied_mmap, __ATOMIC_RELEASE);
  __atomic_store_n(&real.sbrk, spied_sbrk, __ATOMIC_RELEASE);
  if (memory == nullptr) return kNoMemory;
  release(memory);
  return right ? nullptr : kPastTheHooks;
}

}  // namespace hydrant::hooks
