// Registers for membarrier(2) once and calls it. Evictions, thefts and fences use it through membarrier.hpp.
#include "firehose/base/machine/membarrier.hpp"

#include "firehose/base/config/knobs.hpp"

#include <atomic>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::membarrier {
namespace {

std::atomic<bool> g_works{false};  // written once under g_once; relaxed: see enable()
pthread_once_t g_once = PTHREAD_ONCE_INIT;

bool call(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

void switch_on_once() {
  if (HYDRANT_TSAN || knob_number(Knob::kMembarrier) == 0) return;
  const bool registered = call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  // Tries the call: some sandboxes accept the registration but refuse the barrier.
  g_works.store(registered && call(MEMBARRIER_CMD_PRIVATE_EXPEDITED), std::memory_order_relaxed);
}

}  // namespace

bool enable() noexcept {
  pthread_once(&g_once, &switch_on_once);
  return is_enabled();
}

bool is_enabled() noexcept { return g_works.load(std::memory_order_relaxed); }

bool barrier() noexcept { return call(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

}  // namespace hydrant::membarrier
