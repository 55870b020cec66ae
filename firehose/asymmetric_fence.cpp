#include "firehose/asymmetric_fence.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/thread.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::fence {
namespace {

std::atomic<bool> g_asymmetric{false};  // written once under g_once, before the first hold
pthread_once_t g_once = PTHREAD_ONCE_INIT;

int membarrier(int command) noexcept {
  return static_cast<int>(syscall(__NR_membarrier, command, 0, 0));
}

// For a sandbox that begins to refuse membarrier after setup: taking a right away from a mapped page makes
// the kernel interrupt every processor that runs this process, and an interrupt is a full barrier.
[[maybe_unused]] void interrupt_all_processors() noexcept {
  static std::atomic<uint32_t>* page = [] {
    void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::atomic<uint32_t>*>(p);
  }();
  if (page == nullptr) return;
  static Mutex mutex;
  MutexLock lock(mutex);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  page->fetch_add(1);  // present in the page tables of this processor at least
  mprotect(page, 4096, PROT_READ);
}

void set_up_once() {
  if (HYDRANT_TSAN || knob_number(Knob::kMembarrier) == 0) return;
  const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  // One trial: some sandboxes let the registration pass and refuse the barrier.
  g_asymmetric.store(registered && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0,
                     std::memory_order_relaxed);
}

}  // namespace

bool setup() noexcept {
  pthread_once(&g_once, &set_up_once);
  return asymmetric();
}

bool asymmetric() noexcept { return g_asymmetric.load(std::memory_order_relaxed); }

void heavy() noexcept {
#if !HYDRANT_TSAN
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!asymmetric() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  interrupt_all_processors();
#endif
}

}  // namespace hydrant::fence
