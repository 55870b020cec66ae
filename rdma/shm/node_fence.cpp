#include "rdma/shm/node_fence.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/membarrier.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

pthread_once_t g_once = PTHREAD_ONCE_INIT;
bool g_works = false;  // written under g_once

bool call(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

void switch_on_once() {
  if (HYDRANT_TSAN || knob_number(Knob::kMembarrier) == 0) return;
  g_works = call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace

bool NodeFence::switch_on() noexcept {
  pthread_once(&g_once, &switch_on_once);
  return g_works;
}

bool NodeFence::everywhere() noexcept { return call(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace hydrant::shm
