// The real functions, which the program would call without the hooks.
#pragma once

#include "firehose/watch/hooks/hooked_calls.hpp"

namespace hydrant::hooks {

// NOLINTBEGIN(bugprone-macro-parentheses): declarations
struct RealCalls {
#define HYDRANT_MEMBER(name, result, parameters) result(*name) parameters;
  HYDRANT_HOOKED_CALLS(HYDRANT_MEMBER)
};
struct RealLoaderCalls {
  HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_MEMBER)
};
#undef HYDRANT_MEMBER
// NOLINTEND(bugprone-macro-parentheses)

// Each member may be called at any time, also before the constructor: it then finds its function first.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit RealCalls real;
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): constinit
extern constinit RealLoaderCalls real_loader;  // separate: most static programs have no loader

// Finds all of them, if that has not been done. Threads: any. Not reentrant: see real_calls_dynamic.cpp.
void resolve_real_calls();

// Whether real.malloc is libc's own, whose chunks libc_chunks.hpp can read.
bool malloc_is_libcs();

}  // namespace hydrant::hooks
