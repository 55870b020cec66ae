// Writes the error texts of the uring registrar. uring_registrar.cpp calls it with the errno of a failed ring
// operation.
#include "firehose/registrars/uring/uring_status.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/small_file.hpp"
#include "firehose/registrars/charge/memlock.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

// 0, 1 or 2 as in Documentation/admin-guide/sysctl/kernel.rst; -1 without such a setting (Linux < 6.6).
int io_uring_disabled() noexcept {
  char text[8];
  (void)read_small_file("/proc/sys/kernel/io_uring_disabled", text, sizeof text);
  return text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1;
}

// A smaller limit has no room for a ring and a pin.
constexpr uint64_t kRingBytes = 16384;

Status explain_no_memory(MemoryRange range, uint64_t pending_bytes) noexcept {
  const MemlockLimit limit = read_memlock_limit();
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  if (limit.usable_bytes() == UINT64_MAX) {
    return fail(
        Status::kNotReady,
        "io_uring: the kernel has no memory to register [0x%llx, +%zu) (ENOMEM; %s): free memory, "
        "and try again",
        ull(range.addr), range.len, advice);
  }
  if (range.len > limit.bytes) {
    return fail(Status::kResource, "io_uring: [0x%llx, +%zu) is more than may ever be locked: %s",
                ull(range.addr), range.len, advice);
  }
  return fail(
      Status::kNotReady,
      "io_uring: no budget to pin [0x%llx, +%zu) (ENOMEM; all processes of user %u share it, huge "
      "pages count whole, %llu bytes of this process are unpinned but still charged): %s",
      ull(range.addr), range.len, static_cast<unsigned>(getuid()), ull(pending_bytes), advice);
}

// Some kernels also charge the pages of a ring to the account.
Status explain_no_ring_memory(const char* call) noexcept {
  const MemlockLimit limit = read_memlock_limit();
  char advice[256];
  describe_memlock(limit, advice, sizeof advice);
  return fail(limit.usable_bytes() < kRingBytes ? Status::kUnsupported : Status::kResource,
              "io_uring: no memory for a ring (ENOMEM of %s); %s", call, advice);
}

// The kernel lacks the call, or the system forbids it.
Status explain_refused_call(const UringFailure& failure) noexcept {
  return fail(Status::kUnsupported,
              "%s is %s (%s), and io_uring needs it: in a container, use a seccomp profile that "
              "allows io_uring_setup, io_uring_enter, io_uring_register, mmap, madvise and fcntl",
              failure.call,
              failure.error == -ENOSYS ? "absent from this kernel, or hidden by a seccomp filter"
                                       : "forbidden here",
              errno_text(-failure.error));
}

}  // namespace

Status explain_uring_unusable(const UringFailure& failure) noexcept {
  const int error = -failure.error;
  const bool by_setup = std::strcmp(failure.call, "io_uring_setup") == 0;
  const bool by_ring = by_setup || std::strcmp(failure.call, "io_uring_register") == 0;
  switch (error) {
    case EPERM:
    case EACCES: {
      const int disabled = by_setup ? io_uring_disabled() : 0;
      if (disabled > 0) {
        return fail(Status::kUnsupported,
                    "io_uring is switched off (kernel.io_uring_disabled = %d): as root, 'sysctl "
                    "kernel.io_uring_disabled=0'",
                    disabled);
      }
      return explain_refused_call(failure);
    }
    case ENOSYS: return explain_refused_call(failure);
    case EINVAL:
      if (!by_ring) break;
      return fail(
          Status::kUnsupported,
          "this kernel's io_uring is too old (EINVAL of %s): sparse buffer tables need Linux 5.19",
          failure.call);
    case EMFILE:
    case ENFILE:
      return fail(Status::kResource,
                  "no file descriptor for a ring (%s): raise RLIMIT_NOFILE with 'ulimit -n'",
                  errno_text(error));
    case ENOMEM: return explain_no_ring_memory(failure.call);
    case EINTR:
    case EAGAIN:
    case EBUSY:
      return fail(Status::kResource, "io_uring cannot be set up now: %s failed: %s; try again",
                  failure.call, errno_text(error));
    default: break;
  }
  return fail(Status::kUnsupported,
              "io_uring cannot be set up: %s failed: %s; correct the cause, or use mlock",
              failure.call, errno_text(error));
}

Status explain_uring_growth(const UringFailure& failure, uint32_t live) noexcept {
  const int error = -failure.error;
  // Then no release of a pin makes room.
  if (live == 0 && failure.call[0] != '\0') {
    return fail(Status::kResource,
                "io_uring: no ring is left, and another cannot be opened: %s: %s; correct the "
                "cause, or use mlock",
                failure.call, errno_text(error));
  }
  return fail(Status::kNotReady,
              "io_uring: all %u rings are full and another cannot be opened: %s%s%s; release "
              "pins%s",
              live, failure.call, failure.call[0] != '\0' ? ": " : "", errno_text(error),
              error == EMFILE ? ", or raise RLIMIT_NOFILE with 'ulimit -n'" : "");
}

Status explain_uring_pin(int error, MemoryRange range, uint64_t pending_bytes) noexcept {
  const auto addr = ull(range.addr);
  switch (error) {
    case EFAULT:
      return fail(
          Status::kRefused,
          "io_uring: [0x%llx, +%zu) is not all mapped and writable, or is shared with a file "
          "(EFAULT; io_uring pins for writing whatever the requested right): copy, or use mlock",
          addr, range.len);
    case EOPNOTSUPP:
      return fail(Status::kRefused,
                  "io_uring: [0x%llx, +%zu) is a kind of memory that this kernel cannot pin "
                  "(EOPNOTSUPP): copy",
                  addr, range.len);
    case EINVAL:
      return fail(Status::kRefused,
                  "io_uring: [0x%llx, +%zu) spans mappings of different files, or a file mapping "
                  "and anonymous memory, which older kernels (6.1) do not pin in one call "
                  "(EINVAL): pin each mapping separately",
                  addr, range.len);
    case ENOMEM: return explain_no_memory(range, pending_bytes);
    // The ring has tried again already. Nothing that this process could wait for is short.
    case EINTR:
    case EAGAIN:
    case EBUSY:
      return fail(Status::kResource,
                  "io_uring: registering [0x%llx, +%zu) failed each time: io_uring_register: %s; "
                  "try again, or if a seccomp filter refuses the call, allow it",
                  addr, range.len, errno_text(error));
    default:
      return fail(Status::kBroken,
                  "io_uring: registering [0x%llx, +%zu) failed: io_uring_register: %s; if a "
                  "seccomp filter refuses the call, allow it",
                  addr, range.len, errno_text(error));
  }
}

Status explain_uring_move(const UringMoveEnd& end, int fd, uint64_t timeout_ns) noexcept {
  const int error = -end.error;
  switch (end.cause) {
    case UringMoveCause::kStaleKey:
      return fail(Status::kBadArg,
                  "io_uring: the key is stale or does not cover the range to move: pass a live "
                  "pin's key and memory");
    case UringMoveCause::kEndOfFile:
      return fail(Status::kBadArg, "io_uring: descriptor %d ended after %llu bytes", fd,
                  ull(end.moved));
    case UringMoveCause::kRingLost:
      return fail(Status::kBroken,
                  "io_uring: the program has closed the ring that pins this memory, after %llu "
                  "bytes: release the pin, and pin again",
                  ull(end.moved));
    case UringMoveCause::kRingHidden:
      return fail(Status::kBroken,
                  "io_uring: fcntl() and fstat() of the ring that pins this memory are refused (a "
                  "seccomp filter?), after %llu bytes: allow fcntl, fstat and newfstatat",
                  ull(end.moved));
    case UringMoveCause::kCall:
      return fail(uring_try_again(end.error) ? Status::kNotReady : Status::kBroken,
                  "io_uring: moving data of descriptor %d failed after %llu bytes: "
                  "io_uring_enter: %s; %s",
                  fd, ull(end.moved), errno_text(error),
                  uring_try_again(end.error) ? "try again"
                                             : "if a seccomp filter refuses the call, allow it");
    case UringMoveCause::kFile:
      if (error == EBADF) {
        return fail(Status::kBadArg,
                    "io_uring: descriptor %d is not open for reading (to memory) or writing (from "
                    "memory): open it with that mode",
                    fd);
      }
      if (error == ECANCELED) {
        return fail(Status::kNotReady,
                    "io_uring: the kernel could not make a thread for I/O on descriptor %d after "
                    "%llu bytes (ECANCELED): raise ulimit -u, or try again",
                    fd, ull(end.moved));
      }
      if (uring_try_again(end.error)) break;
      return fail(Status::kBroken, "io_uring: I/O on descriptor %d failed after %llu bytes: %s", fd,
                  ull(end.moved), errno_text(error));
    default: break;
  }
  return fail(Status::kNotReady,
              "io_uring: descriptor %d made no progress for %llu s after %llu bytes", fd,
              ull(timeout_ns / 1'000'000'000u), ull(end.moved));
}

}  // namespace hydrant
