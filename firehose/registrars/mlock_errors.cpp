// Turns an errno of mlock(2) into a status and a text. One errno has several causes, so these functions look
// at the limits and at what is mapped. The mlock registrar calls them.
#include "firehose/registrars/mlock_errors.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/charge/memlock.hpp"

#include <cerrno>
#include <sys/mman.h>

namespace hydrant {
namespace {

Status fail_unmapped(MemoryRange range) noexcept {
  return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all mapped: pin mapped memory only",
              ull(range.addr), range.len);
}

Status fail_no_pages(int error, MemoryRange range) noexcept {
  return fail(Status::kNotReady,
              "mlock: the kernel has no memory to make [0x%llx, +%zu) resident (%s): free memory, "
              "or raise the control group's limit, and try again",
              ull(range.addr), range.len, errno_text(error));
}

}  // namespace

// On Linux, MS_ASYNC only checks whether the whole range is mapped.
bool is_mapped(MemoryRange range) noexcept {
  return uncancelled::msync(reinterpret_cast<void*>(range.addr), range.len, MS_ASYNC) == 0;
}

Status fail_no_counts(MemoryRange range) noexcept {
  return fail(
      Status::kResource,
      "mlock: out of memory to count the pages of [0x%llx, +%zu): free memory, or raise ulimit -v",
      ull(range.addr), range.len);
}

Status explain_lock(int error, MemoryRange range) noexcept {
  if (error != ENOMEM && error != EPERM && error != EAGAIN) {
    return fail(Status::kBroken, "mlock of [0x%llx, +%zu) failed: %s", ull(range.addr), range.len,
                errno_text(error));
  }
  if (!is_mapped(range)) {
    return fail_unmapped(range);
  }
  const MemlockLimit limit = read_memlock_limit();
  const uint64_t usable = limit.usable_bytes();
  const uint64_t locked = read_process_bytes("VmLck");
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  if (range.len > usable) {
    return fail(Status::kResource, "mlock: [0x%llx, +%zu) is more than may ever be locked: %s",
                ull(range.addr), range.len, advice);
  }
  if (locked > usable - range.len) {
    return fail(Status::kNotReady,
                "mlock: no budget to lock [0x%llx, +%zu) beside %llu locked bytes: %s",
                ull(range.addr), range.len, ull(locked), advice);
  }
  if (error == EAGAIN) {
    return fail_no_pages(error, range);
  }
  return fail(Status::kRefused,
              "mlock: [0x%llx, +%zu) cannot be made resident (%s): no access rights, "
              "a device, or too many mappings (vm.max_map_count); pin ordinary memory, or copy",
              ull(range.addr), range.len, errno_text(error));
}

Status explain_populate(int error, MemoryRange range, bool writing) noexcept {
  if (!is_mapped(range)) {
    return fail_unmapped(range);
  }
  if (error == EINVAL) {
    return fail(Status::kRefused, "mlock: [0x%llx, +%zu) is not all %s: %s", ull(range.addr),
                range.len, writing ? "writable" : "readable",
                writing ? "request rights that do not write, or copy" : "mprotect() it, or copy");
  }
  if (error == ENOMEM || error == EAGAIN || error == EINTR) {
    return fail_no_pages(error, range);
  }
  return fail(Status::kRefused,
              "mlock: [0x%llx, +%zu) cannot be made resident: %s; pin ordinary memory, or copy",
              ull(range.addr), range.len, errno_text(error));
}

}  // namespace hydrant
