// Runs code in a child and records all its system calls on the address space, made by libc, the dynamic
// loader, the library, or directly. Uses a seccomp filter that notifies this process first.
#pragma once

#include "tests/stale/trace/trace_log.hpp"

#include <functional>
#include <string>

namespace hydrant::stale {

// The child runs body() and exits with its result. "" on success; otherwise the error, or the reason why
// calls cannot be watched here (*refused is true then). Requires: no other threads in this process.
std::string run_watched(TraceLog& log, const std::function<int()>& body, int* status,
                        bool* refused);

// The name of a watched call, such as "munmap".
const char* call_name(int32_t call);

}  // namespace hydrant::stale
