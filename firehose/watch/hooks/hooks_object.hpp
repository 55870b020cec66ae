// hydrant_hooks_1, as the hooks themselves see it, and the three words that every hooked call reads.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/hooks_abi.h"

#include <cstddef>
#include <cstdint>

namespace hydrant::hooks {

// The exported object under a name that nothing outside can take the place of.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constants of the linker
extern "C" hydrant_hooks_t hydrant_hooks_object __attribute__((visibility("hidden")));

// Null until libfirehose has a monitor. Pairs with its release.
inline const hydrant_monitor_t* monitor() {
  return __atomic_load_n(&hydrant_hooks_object.monitor, __ATOMIC_ACQUIRE);
}

// A page that never was the program's and never will be; null where the kernel refuses. Threads: any, in any
// state: only system calls. errno is kept.
void* take_private_page();
void drop_private_page(void* page);
inline constexpr size_t kPrivatePageBytes = 4096;

// Keeps errno through what the program did not ask for.
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
