// In a static program the linker knows the real functions: --wrap makes <name> of everybody else ours, and
// __real_<name> of this file the library's.
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#define HYDRANT_DECLARE_REAL(name, result, parameters) \
  extern "C" result real_##name parameters __asm__("__real_" #name);
HYDRANT_HOOKED_CALLS(HYDRANT_DECLARE_REAL)
#undef HYDRANT_DECLARE_REAL

extern "C" void* libc_malloc(size_t) __asm__("__libc_malloc") __attribute__((weak));

namespace hydrant::hooks {

#define HYDRANT_REAL(name, result, parameters) .name = real_##name,
constinit RealCalls real = {HYDRANT_HOOKED_CALLS(HYDRANT_REAL)};
#undef HYDRANT_REAL

bool malloc_is_libcs() { return libc_malloc != nullptr && real.malloc == libc_malloc; }

void resolve_real_calls() {
  if (malloc_is_libcs()) note_libc_heap_start();
}

}  // namespace hydrant::hooks
