// Registers the process for global membarrier(2), and executes the barrier. The transport registers at its
// start; shm_sleep.cpp executes the barrier when the reader of a ring becomes idle.
#include "rdma/shm/memory/global_membarrier.hpp"

#include "firehose/base/config/knobs.hpp"
#include "firehose/base/machine/membarrier.hpp"
#include "firehose/base/thread.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

Mutex g_mu;
pid_t g_tried_by HYDRANT_GUARDED_BY(g_mu) = 0;  // the child of a fork tries again
bool g_works HYDRANT_GUARDED_BY(g_mu) = false;

bool call(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool registers_and_works() noexcept {
  if (HYDRANT_TSAN || knob_number(Knob::kMembarrier) == 0) return false;
  return call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace

bool GlobalMembarrier::enable() noexcept {
  const MutexLock lock(g_mu);
  if (g_tried_by != getpid()) {
    g_works = registers_and_works();
    g_tried_by = getpid();
  }
  return g_works;
}

bool GlobalMembarrier::issue() noexcept { return call(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace hydrant::shm
