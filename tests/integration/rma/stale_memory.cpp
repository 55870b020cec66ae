#include "tests/integration/rma/stale.hpp"

#include <cstdlib>
#include <sys/mman.h>

namespace rma_client::stale {
namespace {

constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18

std::byte* map(std::byte* where, size_t bytes, int prot) {
  void* at = mmap(where, bytes, prot,
                  MAP_PRIVATE | MAP_ANONYMOUS | (where != nullptr ? MAP_FIXED : 0), -1, 0);
  if (at == MAP_FAILED) wrong("mmap");
  return static_cast<std::byte*>(at);
}

// Whole pages, so that no other heap block shares them.
std::byte* allocate() {
  void* at = nullptr;
  if (posix_memalign(&at, 4096, kSlotBytes) != 0) wrong("no memory");
  return static_cast<std::byte*>(at);
}

}  // namespace

std::byte* first_memory(Way way) {
  if (way == Way::kMalloc) return allocate();
  std::byte* const at = map(nullptr, kSlotBytes + 2 * kGapBytes, PROT_NONE) + kGapBytes;
  return map(at, kSlotBytes, PROT_READ | PROT_WRITE);
}

std::byte* change_memory(Way way, std::byte* now) {
  switch (way) {
    case Way::kMapOver: return map(now, kSlotBytes, PROT_READ | PROT_WRITE);
    case Way::kDontNeed:
      // The injected network locks pinned memory; this call drops locked pages.
      if (madvise(now, kSlotBytes, MADV_DONTNEED) != 0 &&
          madvise(now, kSlotBytes, kDontNeedLocked) != 0)
        wrong("madvise");
      return now;
    case Way::kRemap:
      if (munmap(now, kSlotBytes) != 0) wrong("munmap");
      // No other thread maps memory here, so the address is still free.
      return map(now, kSlotBytes, PROT_READ | PROT_WRITE);
    default: std::free(now); return allocate();
  }
}

}  // namespace rma_client::stale
