// Memory for the cache's own tables, straight from the kernel.
//
// A hook in front of libc's mmap may wait for the monitor's reader, which may wait for a mutex whose holder
// grows a table. The kernel merges adjacent mappings of equal properties, and the monitor watches whole
// mappings: a table merged with memory of the program would be watched, and unmapping it would look like a
// raw release. So tables are mapped without access, marked, and only then made accessible: the mark is
// MADV_DONTDUMP, which programs seldom set (decision 0037). Core dumps have no tables.
//
// Threads: any. errno is kept on success.
#pragma once

#include <cstddef>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace detail {
inline constexpr int kTableFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
}

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer must see that memory at an address is not what was there before.
inline void* raw_reserve(size_t bytes) noexcept {
  void* p = mmap(nullptr, bytes, PROT_NONE, detail::kTableFlags, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}
inline void raw_unmap(void* p, size_t bytes) noexcept { (void)munmap(p, bytes); }
inline bool raw_advise(void* p, size_t bytes, int advice) noexcept {
  return madvise(p, bytes, advice) == 0;
}
#else
// Inaccessible addresses. Null when refused, with errno set.
inline void* raw_reserve(size_t bytes) noexcept {
  const long p = syscall(SYS_mmap, nullptr, bytes, PROT_NONE, detail::kTableFlags, -1, 0L);
  return p == -1 ? nullptr : reinterpret_cast<void*>(p);
}
inline void raw_unmap(void* p, size_t bytes) noexcept { (void)syscall(SYS_munmap, p, bytes); }
inline bool raw_advise(void* p, size_t bytes, int advice) noexcept {
  return syscall(SYS_madvise, p, bytes, advice) == 0;
}
#endif

// All bytes read as zero again.
inline void raw_clear(void* p, size_t bytes) noexcept { (void)raw_advise(p, bytes, MADV_DONTNEED); }
// Reserved addresses become readable and writable, after they were marked. False when refused.
[[nodiscard]] inline bool raw_open(void* p, size_t bytes) noexcept {
  return mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0;
}
// Readable, writable, private, charged when it is touched. Null when refused, with errno set.
inline void* raw_map(size_t bytes) noexcept {
  void* p = raw_reserve(bytes);
  if (p == nullptr || (raw_advise(p, bytes, MADV_DONTDUMP) && raw_open(p, bytes))) return p;
  raw_unmap(p, bytes);
  return nullptr;
}

}  // namespace hydrant
