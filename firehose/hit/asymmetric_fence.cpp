// Executes the expensive side of the fence: membarrier(2), or else an interrupt of every processor that runs
// the process. Evictions and invalidations call heavy() through FenceEpoch, after they have shut gates.
#include "firehose/hit/asymmetric_fence.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hydrant::asymmetric_fence {
namespace {

// True if the kernel interrupts other processors when a page table changes. Not so on arm64, nor on x86-64
// with INVLPGB (bit 3 of EBX in this leaf): there the processors notify each other without a barrier.
[[maybe_unused]] bool page_tables_interrupt() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000008, &a, &b, &c, &d) == 0 || (b & 1u << 3) == 0;
#else
  return false;
#endif
}

// Removing a right from a mapped page makes the kernel interrupt every processor that runs this process, and
// an interrupt is a full barrier. False if there is no page for it.
[[maybe_unused]] bool interrupt_all_processors() noexcept {
  static std::atomic<uint32_t>* page = [] {
    void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::atomic<uint32_t>*>(p);
  }();
  if (page == nullptr) return false;
  static Mutex mutex;
  MutexLock lock(mutex);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  page->fetch_add(1);  // present in the page tables of this processor at least
  mprotect(page, 4096, PROT_READ);
  return true;
}

// For a sandbox that refuses membarrier only after setup: hits rely on it by then, so the closer needs
// another fence, however expensive.
[[maybe_unused]] void heavy_without_membarrier() noexcept {
  if (page_tables_interrupt() && interrupt_all_processors()) return;
  if (visit_processors()) return;
  log_error(
      "neither membarrier nor sched_setaffinity is allowed any more: no hold can be proved absent");
  std::abort();
}

}  // namespace

void heavy() noexcept {
#if !HYDRANT_TSAN
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asymmetric() || membarrier::barrier()) return;
  heavy_without_membarrier();
#endif
}

bool visit_processors() noexcept {
  // As large as the kernel's mask: the call returns how many bytes of it were written.
  constexpr size_t kWords = 128;
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  unsigned long before[kWords] = {};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof before, before);
  if (bytes <= 0) return false;
  const auto words = static_cast<size_t>(bytes) / sizeof(unsigned long);
  bool visited = false;
  bool refused = false;
  for (size_t cpu = 0; cpu < words * kBits && !refused; ++cpu) {
    unsigned long one[kWords] = {};
    one[cpu / kBits] = 1ul << cpu % kBits;
    if (syscall(SYS_sched_setaffinity, 0, bytes, one) == 0) {
      visited = true;
    } else {
      refused = errno != EINVAL;  // EINVAL: a processor that is absent, or not for this process
    }
  }
  (void)syscall(SYS_sched_setaffinity, 0, bytes, before);
  return visited && !refused;
}

}  // namespace hydrant::asymmetric_fence
