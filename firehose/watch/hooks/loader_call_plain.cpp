// Calls the loader as this library on processors other than x86-64: the caller's RUNPATH does not count
// there. loader_hooks.cpp calls it.
#include "firehose/watch/hooks/loader_call.hpp"

namespace hydrant::hooks {

uintptr_t call_on_behalf(const void* /*caller*/, LoaderCall function, uintptr_t a, uintptr_t b,
                         uintptr_t c) {
  return function(a, b, c);
}

}  // namespace hydrant::hooks
