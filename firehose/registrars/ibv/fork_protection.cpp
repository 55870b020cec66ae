// Asks libibverbs for the state of its fork protection.
#include "firehose/registrars/ibv/fork_protection.hpp"

#include "firehose/base/uncancelled.hpp"

#include <cstdlib>

// Exists in libibverbs from rdma-core 35 on. Weak, so that a program also runs with an older library: null
// there. Declared by another name, because older headers lack the type of its result.
extern "C" int hydrant_ibv_fork_status() __asm__("ibv_is_fork_initialized") __attribute__((weak));

namespace hydrant {

ForkProtection fork_protection() noexcept {
  if (&hydrant_ibv_fork_status != nullptr) {
    switch (uncancelled::call(hydrant_ibv_fork_status)) {
      case 0: return ForkProtection::kInactive;  // IBV_FORK_DISABLED
      case 1: return ForkProtection::kActive;    // IBV_FORK_ENABLED
      default: return ForkProtection::kUnneeded;
    }
  }
  const bool asked =
      std::getenv("RDMAV_FORK_SAFE") != nullptr || std::getenv("IBV_FORK_SAFE") != nullptr;
  return asked ? ForkProtection::kActive : ForkProtection::kUnknown;
}

}  // namespace hydrant
