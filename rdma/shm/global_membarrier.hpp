// A full memory barrier in every thread of every process of the node, at the cost of the one who asks:
// membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED. It is what lets a sender look at a ring's attention word
// right after its store, without a fence of its own (docs/wire_format_shm.md).
//
// A sender is met only if its process is registered. One that is not, and one whose reader cannot ask,
// looks at the attention word with a locked instruction instead.
#pragma once

namespace hydrant::shm {

class GlobalMembarrier {
 public:
  // Registers this process and tries it, once per process. FIREHOSE_MEMBARRIER=0 refuses both on purpose;
  // ThreadSanitizer, which does not understand it, refuses it as well.
  static bool enable() noexcept;

  // Requires: enable() was true. False if the kernel refuses, which a sandbox may begin to do later.
  // Cost: a system call and an interrupt of each processor that runs a rank: 1 to 15 us.
  static bool issue() noexcept;
};

}  // namespace hydrant::shm
