// Memory files: anonymous files of a fixed size, whose mappings processes share. This is the only place
// that creates and grows them, because growing a file beyond RLIMIT_FSIZE (ulimit -f) raises SIGXFSZ, which
// ends the program, even for a sparse file. Memory comes with the first access to a page; limits of memory
// are checked where pages are allocated.
#pragma once

#include "firehose/base/status.hpp"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {

// A memory file of `bytes`, which no process can shrink or grow afterwards. -1 with errno: EFBIG beyond
// RLIMIT_FSIZE. On success errno is preserved. Direct system calls, which libfirehose_hooks.so does not
// interpose; async-signal-safe.
inline int make_memory_file(const char* name, uint64_t bytes) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return -1;
  }
  const long fd = syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (syscall(SYS_ftruncate, fd, bytes) == 0 && syscall(SYS_fcntl, fd, F_ADD_SEALS, kSeals) == 0) {
    return static_cast<int>(fd);
  }
  const int error = errno;
  (void)syscall(SYS_close, fd);
  errno = error;
  return -1;
}

// The error of a failed make_memory_file(), from errno; `purpose` ends "a memory file of N bytes for ...".
Status refuse_memory_file(const char* purpose, uint64_t bytes) noexcept;

}  // namespace hydrant
