// Direct system calls for address space.
//
// libfirehose_hooks.so interposes mmap, munmap, madvise and fallocate and makes the caller wait for the
// monitor's reader. An arena reports its changes to the monitor itself, so that wait would be wasted. An
// allocator that waited with its lock held would also block every other thread.
//
// On success they preserve errno. All are async-signal-safe.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::arena {

// 0 when refused, with errno set. fd < 0: private anonymous memory. Memory is charged when it is first
// touched.
inline uintptr_t sys_map(uintptr_t wanted, size_t bytes, int protection, int flags,
                         int fd) noexcept {
  const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  const long p = syscall(SYS_mmap, wanted, bytes, protection, kind | MAP_NORESERVE | flags, fd, 0L);
  return p == -1 ? 0 : static_cast<uintptr_t>(p);
}
inline bool sys_unmap(uintptr_t addr, size_t bytes) noexcept {
  return syscall(SYS_munmap, addr, bytes) == 0;
}
inline bool sys_advise(uintptr_t addr, size_t bytes, int advice) noexcept {
  return syscall(SYS_madvise, addr, bytes, advice) == 0;
}
// The file keeps its size; the punched part reads as zero.
inline bool sys_punch(int fd, size_t offset, size_t bytes) noexcept {
  return syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0;
}

inline void sys_close(int fd) noexcept { (void)syscall(SYS_close, fd); }

}  // namespace hydrant::arena
