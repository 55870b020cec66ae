// Processors for which no way is written: a caller's RUNPATH does not count while the hooks are there.
#include "firehose/watch/hooks/loader_call.hpp"

namespace hydrant::hooks {

uintptr_t call_on_behalf(const void* /*caller*/, LoaderCall function, uintptr_t a, uintptr_t b,
                         uintptr_t c) {
  return function(a, b, c);
}

}  // namespace hydrant::hooks
