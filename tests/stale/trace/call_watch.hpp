// Runs something in a child whose system calls on the address space are all noted, whoever makes them:
// libc, the dynamic loader, the library, a raw system call. By a seccomp filter that asks this process
// first.
#pragma once

#include "tests/stale/trace/trace_log.hpp"

#include <functional>
#include <string>

namespace hydrant::stale {

// The child runs body() and leaves with its answer as exit status. "" on success; otherwise what went
// wrong, or why calls cannot be watched here (*refused is true then). Requires: no other threads in this
// process.
std::string run_watched(TraceLog& log, const std::function<int()>& body, int* status,
                        bool* refused);

// "munmap" and the like.
const char* call_name(int32_t call);

}  // namespace hydrant::stale
