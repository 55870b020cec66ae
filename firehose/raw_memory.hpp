// mmap and friends straight from the kernel. The cache's own tables come from here: a hook that stands before
// libc's mmap may wait for the monitor's reader, which may wait for a mutex whose holder grows a table.
#pragma once

#include <cstddef>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer must see that memory at an address is not what was there before.
inline void* raw_map(size_t bytes) noexcept {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}
inline void raw_unmap(void* p, size_t bytes) noexcept { (void)munmap(p, bytes); }
inline void raw_clear(void* p, size_t bytes) noexcept { (void)madvise(p, bytes, MADV_DONTNEED); }
#else
// Readable, writable, private, not charged before it is touched. Null when refused.
inline void* raw_map(size_t bytes) noexcept {
  const long p = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  return p == -1 ? nullptr : reinterpret_cast<void*>(p);
}
inline void raw_unmap(void* p, size_t bytes) noexcept { (void)syscall(SYS_munmap, p, bytes); }
// All bytes read as zero again.
inline void raw_clear(void* p, size_t bytes) noexcept {
  (void)syscall(SYS_madvise, p, bytes, MADV_DONTNEED);
}
#endif

}  // namespace hydrant
