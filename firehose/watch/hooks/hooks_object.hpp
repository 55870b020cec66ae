// hydrant_hooks_1 as the hooks see it, the monitor in it, and helpers that several hooks use.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/hooks_abi.h"

#include <cstddef>
#include <cstdint>

namespace hydrant::hooks {

// The exported object under a hidden name, which other objects cannot interpose.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constants of the linker
extern "C" hydrant_hooks_t hydrant_hooks_object __attribute__((visibility("hidden")));

// Null until libfirehose has a monitor. Acquire pairs with libfirehose's release.
inline const hydrant_monitor_t* monitor() {
  return __atomic_load_n(&hydrant_hooks_object.monitor, __ATOMIC_ACQUIRE);
}

// A page that never belongs to the program; null if the kernel refuses. Threads: any, in any state: only
// system calls. errno is kept.
void* take_private_page();
void drop_private_page(void* page);
inline constexpr size_t kPrivatePageBytes = 4096;

// Restores errno after work that the program did not request.
class ErrnoGuard {
 public:
  ErrnoGuard();
  ~ErrnoGuard();
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;

 private:
  int saved_;
};

}  // namespace hydrant::hooks
