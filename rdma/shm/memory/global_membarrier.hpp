// A full memory barrier in every running thread of every process of the node, paid for by the caller alone:
// membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED. With it, a sender reads a ring's poll_state right after its
// store without a fence of its own (docs/wire_format_shm.md).
//
// The barrier reaches a sender only if its process is registered. A sender that is not registered, or whose
// reader cannot issue the barrier, reads poll_state with a locked instruction instead.
#pragma once

namespace hydrant::shm {

class GlobalMembarrier {
 public:
  // Registers this process and tries the barrier, once per process. False with FIREHOSE_MEMBARRIER=0, and
  // under ThreadSanitizer, which does not model it.
  static bool enable() noexcept;

  // Requires: enable() returned true. False if the kernel refuses, which a sandbox may begin to do later.
  // Cost: a system call and an interrupt of each processor that runs a rank: 1 to 15 us.
  static bool issue() noexcept;
};

}  // namespace hydrant::shm
