// The one way in which the libraries write to files that the user or the program has named: traces,
// statistics, messages on standard error. A pipe whose reader is gone (SIGPIPE) and a file beyond `ulimit -f`
// (SIGXFSZ) are errors, never signals: the kernel's signal is taken back before the call returns. Handlers of
// the program do not run, and a signal that was pending before stays pending.
//
// Threads: any; also in signal handlers. No lock, no allocation, no cancellation point; errno is preserved.
// Cost: three system calls beside those that write.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

struct Written {
  size_t bytes = 0;
  int error = 0;  // an errno; not 0 if and only if some bytes were not written
};

// Writes all bytes in spite of signals. `patience_ns`: how long it waits for room in a file that has none and
// does not block.
Written write_quietly(int fd, const void* data, size_t bytes, uint64_t patience_ns = 0) noexcept;

// Opens a file for writing, with O_CREAT, O_CLOEXEC and `flags`; writes to it block. A pipe without a reader
// is -ENXIO at once, where open(2) waits for a reader. Negative: an errno.
int open_quietly(const char* path, int flags) noexcept;

// Whether the path names a pipe.
bool is_pipe(const char* path) noexcept;

}  // namespace hydrant
