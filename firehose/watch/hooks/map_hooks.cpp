// Hooks the calls that map, unmap and empty memory. Each notes what it releases before it calls the real
// function (watched_call.hpp).
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/watched_call.hpp"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>

using hydrant::hooks::acquired;
using hydrant::hooks::acquired_somewhere;
using hydrant::hooks::ErrnoGuard;
using hydrant::hooks::file_changes;
using hydrant::hooks::forgotten;
using hydrant::hooks::kAllMemory;
using hydrant::hooks::real;
using hydrant::hooks::Released;
using hydrant::hooks::released;
using hydrant::hooks::releasing;
using hydrant::hooks::replaced;

namespace {

// The kernel rounds the length of a huge-page mapping up to whole huge pages, whose size is not known here.
// Such mappings lie at multiples of that size, and the smallest size is 64 KiB.
bool may_be_rounded_up(const void* addr, size_t len) {
  constexpr size_t kSmallestHugePage = size_t{64} << 10;
  return reinterpret_cast<uintptr_t>(addr) % kSmallestHugePage == 0 && len % kSmallestHugePage != 0;
}

Released mapped_over(const void* addr, size_t len, bool may_be_huge) {
  return may_be_huge && may_be_rounded_up(addr, len) ? kAllMemory : released(addr, len);
}

void acquired_pages(const void* addr, size_t len, bool may_be_huge) {
  may_be_huge&& may_be_rounded_up(addr, len) ? acquired_somewhere() : acquired(addr, len);
}

}  // namespace

// MAP_FIXED also releases memory.
void* hook_mmap(void* addr, size_t len, int protection, int flags, int fd, off_t offset) {
  const bool may_be_huge = (flags & MAP_HUGETLB) != 0 || (flags & MAP_ANONYMOUS) == 0;
  const Released may = (flags & MAP_FIXED) != 0 ? mapped_over(addr, len, may_be_huge) : Released{};
  void* got = releasing(may, [&] { return real.mmap(addr, len, protection, flags, fd, offset); });
  if (got != MAP_FAILED) acquired_pages(got, len, may_be_huge);
  return got;
}
HYDRANT_EXPORT_HOOK(mmap);
HYDRANT_EXPORT_HOOK_AS(mmap64, mmap);

int hook_munmap(void* addr, size_t len) {
  return releasing(released(addr, len), [&] { return real.munmap(addr, len); });
}
HYDRANT_EXPORT_HOOK(munmap);

namespace {

// Returns one note for a mapping that moves to a given address: both ranges, and what lies between them.
Released old_and_new(const void* old_addr, size_t old_len, const void* new_addr, size_t new_len) {
  const auto a = reinterpret_cast<uintptr_t>(old_addr);
  const auto b = reinterpret_cast<uintptr_t>(new_addr);
  const uintptr_t first = a < b ? a : b;
  const uintptr_t end = a + old_len > b + new_len ? a + old_len : b + new_len;
  return may_be_rounded_up(new_addr, new_len) ? kAllMemory : Released{first, end - first};
}

}  // namespace

void* hook_mremap(void* old_addr, size_t old_len, size_t new_len, int flags, void* new_addr) {
  const bool is_fixed = (flags & MREMAP_FIXED) != 0;
  const Released may =
      is_fixed ? old_and_new(old_addr, old_len, new_addr, new_len) : released(old_addr, old_len);
  void* got =
      releasing(may, [&] { return real.mremap(old_addr, old_len, new_len, flags, new_addr); });
  if (got == MAP_FAILED) return got;
  // If it has grown in place, only the part behind the old end is new. Huge pages do not grow in place.
  if (got != old_addr) {
    acquired_pages(got, new_len, true);
  } else if (new_len > old_len) {
    acquired(static_cast<const char*>(got) + old_len, new_len - old_len);
  }
  return got;
}
HYDRANT_EXPORT_HOOK(mremap);

namespace {
// MADV_GUARD_INSTALL (Linux 6.13) empties pages, and userfaultfd does not report it.
constexpr int kGuardInstall = 102;
}  // namespace

int hook_madvise(void* addr, size_t len, int advice) {
  const int result =
      releasing(released(addr, len), [&] { return real.madvise(addr, len, advice); });
  if (advice == kGuardInstall) forgotten(addr, len);
  return result;
}
HYDRANT_EXPORT_HOOK(madvise);

int hook_posix_madvise(void* addr, size_t len, int advice) {
  return releasing(released(addr, len), [&] { return real.posix_madvise(addr, len, advice); });
}
HYDRANT_EXPORT_HOOK(posix_madvise);

// The ranges may be this process's own memory: newer kernels let a process drop its own pages by this call.
ssize_t hook_process_madvise(int pid_fd, const iovec* ranges, size_t count, int advice,
                             unsigned flags) {
  const ssize_t result = releasing(
      kAllMemory, [&] { return real.process_madvise(pid_fd, ranges, count, advice, flags); });
  // If the ranges are of another process this is unnecessary, and harmless.
  for (size_t i = 0; advice == kGuardInstall && i < count; ++i) {
    forgotten(ranges[i].iov_base, ranges[i].iov_len);
  }
  return result;
}
HYDRANT_EXPORT_HOOK(process_madvise);

int hook_remap_file_pages(void* addr, size_t len, int protection, size_t page, int flags) {
  const int result = releasing(released(addr, len), [&] {
    return real.remap_file_pages(addr, len, protection, page, flags);
  });
  if (result == 0) acquired(addr, len);
  return result;
}
HYDRANT_EXPORT_HOOK(remap_file_pages);

namespace {

// Longer than any segment: everything is forgotten.
constexpr size_t kAnyLength = size_t{1} << 62;

// Forgets the memory under a segment. SHM_REMAP has unmapped it, perhaps also if the call failed; userfaultfd
// does not report that.
void forget_under_segment(int id, uintptr_t addr, bool attached) {
  const ErrnoGuard keep;
  shmid_ds segment{};
  const bool known = shmctl(id, IPC_STAT, &segment) == 0;
  if (!known && !attached) return;  // a segment whose size may not be read cannot be attached
  // A segment has whole pages, and a segment of huge pages lies at a multiple of their size. The lowest set
  // bit of the address is a multiple of either size.
  const size_t page = addr & (~addr + 1);
  const size_t len = known ? (segment.shm_segsz + page - 1) & ~(page - 1) : kAnyLength;
  replaced(reinterpret_cast<const void*>(addr), len);
}

}  // namespace

void* hook_shmat(int id, const void* addr, int flags) {
  void* got = releasing(kAllMemory, [&] { return real.shmat(id, addr, flags); });
  const bool attached = got != MAP_FAILED;
  if ((flags & SHM_REMAP) != 0 && addr != nullptr) {
    const uintptr_t boundary = static_cast<uintptr_t>(SHMLBA);  // SHM_RND rounds down to it
    const uintptr_t requested = reinterpret_cast<uintptr_t>(addr) & ~(boundary - 1);
    forget_under_segment(id, attached ? reinterpret_cast<uintptr_t>(got) : requested, attached);
  }
  if (attached) acquired_somewhere();
  return got;
}
HYDRANT_EXPORT_HOOK(shmat);

int hook_shmdt(const void* addr) {
  file_changes();
  const int result = releasing(kAllMemory, [&] { return real.shmdt(addr); });
  file_changes();
  return result;
}
HYDRANT_EXPORT_HOOK(shmdt);

int hook_brk(void* end) {
  char* before = static_cast<char*>(real.sbrk(0));
  auto* after = static_cast<char*>(end);
  const Released may =
      after < before ? released(after, static_cast<size_t>(before - after)) : Released{};
  const int result = releasing(may, [&] { return real.brk(end); });
  if (result == 0 && after > before) acquired(before, static_cast<size_t>(after - before));
  return result;
}
HYDRANT_EXPORT_HOOK(brk);

void* hook_sbrk(intptr_t increment) {
  Released may{};
  if (increment < 0) {
    const char* now = static_cast<const char*>(real.sbrk(0));
    may = released(now + increment, static_cast<size_t>(-increment));
  }
  void* before = releasing(may, [&] { return real.sbrk(increment); });
  if (increment > 0 && before != MAP_FAILED) acquired(before, static_cast<size_t>(increment));
  return before;
}
HYDRANT_EXPORT_HOOK(sbrk);
