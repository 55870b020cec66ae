// Names the real functions in a static program. The linker's --wrap redirects <name> of all other objects to
// the hook, and __real_<name> of this file to libc.
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#define HYDRANT_DECLARE_REAL(name, result, parameters) \
  extern "C" result real_##name parameters __asm__("__real_" #name);
HYDRANT_HOOKED_CALLS(HYDRANT_DECLARE_REAL)
#undef HYDRANT_DECLARE_REAL

extern "C" void* libc_malloc(size_t) __asm__("__libc_malloc") __attribute__((weak));

namespace hydrant::hooks {

#define HYDRANT_REAL(name, result, parameters) .name = real_##name,
constinit RealCalls real = {HYDRANT_HOOKED_CALLS(HYDRANT_REAL)};
#undef HYDRANT_REAL

namespace {

// The start of the heap that ends at the break. In a static program libc has taken some of it before any
// constructor runs; a dynamic libc takes its first memory after the hooks are loaded.
uintptr_t begin_of_heap(uintptr_t end) {
  constexpr uintptr_t kPage = 4096;
  unsigned char resident = 0;
  uintptr_t begin = (end + kPage - 1) & ~(kPage - 1);
  while (syscall(SYS_mincore, begin - kPage, kPage, &resident) == 0) begin -= kPage;
  return begin;
}

}  // namespace

bool malloc_is_libcs() { return libc_malloc != nullptr && real.malloc == libc_malloc; }

void resolve_real_calls() {
  if (!malloc_is_libcs()) return;
  note_libc_heap_start();
  const ErrnoGuard keep;
  __atomic_store_n(&libc_heap.low, begin_of_heap(libc_heap.low), __ATOMIC_RELEASE);
}

}  // namespace hydrant::hooks
