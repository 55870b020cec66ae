// Function names and source lines of code addresses. An addr2line(1) reads them from debugging
// information, in a separate process, because the calling process may be damaged.
// docs/decisions/0035-backtrace-lines.md compares the alternatives.
//
// Threads: any, and signal handlers; no allocation. Only one call runs at a time; a concurrent call
// returns null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace hydrant {

struct CodeLocation {
  char name[256];   // "" if unknown
  char place[256];  // "file.c:12", or "" if unknown
};

// Looks up at most kMaxLocations return addresses, each at its call instruction. Returns null if the
// lookup cannot start. The result is valid until the next call. Waits at most 10 s.
inline constexpr int kMaxLocations = 100;
const CodeLocation* find_code_locations(void* const* frames, int count) noexcept;

// Runs the first of `programs` (null-terminated) found in PATH with `arguments` after its name.
// Standard output goes to `output`, standard error to /dev/null. Returns its pid, or -1 if no program
// could be run.
pid_t run_helper(const char* const* programs, const char* const* arguments, int output) noexcept;
// Waits for the child's end; kills it after `limit_ns`. True if it exited with 0.
bool await_helper(pid_t child, uint64_t limit_ns) noexcept;

}  // namespace hydrant
