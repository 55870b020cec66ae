// Makes the real system calls behind MlockCalls. The mlock registrar uses them; tests substitute failing
// ones.
#include "firehose/registrars/mlock_calls.hpp"

#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

namespace hydrant {
namespace {

// Direct system calls: sanitizers replace the libc functions by ones that lock nothing.
int lock(MemoryRange range, bool on_fault) noexcept {
  const long result = on_fault ? syscall(SYS_mlock2, range.addr, range.len, MLOCK_ONFAULT)
                               : syscall(SYS_mlock, range.addr, range.len);
  return result == 0 ? 0 : errno;
}

int unlock(MemoryRange range) noexcept {
  return syscall(SYS_munlock, range.addr, range.len) == 0 ? 0 : errno;
}

int populate(MemoryRange range, bool writing) noexcept {
  const int advice = writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  return madvise(reinterpret_cast<void*>(range.addr), range.len, advice) == 0 ? 0 : errno;
}

int mapped(MemoryRange range, MappedRun each, void* context) noexcept {
  return for_each_mapped(range, each, context) ? 0 : ENOENT;
}

// Without MS_SYNC msync() writes nothing. With MS_INVALIDATE it refuses memory with any lock.
int find_lock(MemoryRange range) noexcept {
  return syscall(SYS_msync, range.addr, range.len, MS_INVALIDATE | MS_ASYNC) == 0 ? 0 : errno;
}

int mapping(uintptr_t addr, MemoryRange* out) noexcept {
  MappingQuery query;
  if (!query.open()) return errno;
  Mapping found{};
  const int error = query.find_quickly(addr, &found) ? 0 : errno;
  query.close();
  *out = found.range;
  return error;
}

}  // namespace

constinit const MlockCalls kMlockCalls = {&lock, &unlock, &populate, &mapped, &find_lock, &mapping};

}  // namespace hydrant
