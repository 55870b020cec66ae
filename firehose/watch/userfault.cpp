// Opens a userfaultfd, registers and unregisters ranges with it, and decodes its events. Only the monitor
// calls it: the reader thread reads, misses register memory (mapping_watcher.cpp).
#include "firehose/watch/userfault.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace hydrant {
namespace {

const char* reason_of(int error) {
  switch (error) {
    case EPERM:
      return "userfaultfd is not permitted here (a container's seccomp profile?): allow the system "
             "call userfaultfd";
    case ENOSYS:
      return "this kernel has no userfaultfd (CONFIG_USERFAULTFD), or a sandbox hides it";
    case EMFILE:
    case ENFILE: return "no file descriptor was left for a userfaultfd: raise ulimit -n";
    case ENOMEM: return "the kernel had no memory for a userfaultfd";
    case EINVAL: return "this kernel's userfaultfd is too old: Linux 5.11 is needed";
    case EAGAIN:
      return "userfaultfd fails with EAGAIN, as no kernel does (a container's seccomp profile?): "
             "allow the system call userfaultfd";
    default:
      return "userfaultfd fails as no kernel does (a container's seccomp profile?): allow the call";
  }
}

}  // namespace

int Userfault::open(const char** reason) noexcept {
  // UFFD_USER_MODE_ONLY: unprivileged processes may open it, and the monitor handles no faults of the kernel.
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0) {
    const int error = errno;
    *reason = reason_of(error);
    return error;
  }
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  if (ioctl(static_cast<int>(fd), UFFDIO_API, &api) != 0) {
    const int error = errno;
    *reason = error == EINVAL
                  ? "this kernel's userfaultfd does not report unmapping (Linux 5.7 does)"
                  : "ioctl(UFFDIO_API) is not permitted here: allow it for userfaultfds";
    uncancelled::close(static_cast<int>(fd));
    return error;
  }
  identity_.note(static_cast<int>(fd));
  if (!identity_.is_for_certain(static_cast<int>(fd))) {
    *reason = "fstat() of a userfaultfd is not permitted here: allow newfstatat and fstat";
    uncancelled::close(static_cast<int>(fd));
    return EPERM;
  }
  fd_.store(static_cast<int>(fd), std::memory_order_relaxed);
  return 0;
}

void Userfault::close() noexcept {
  const int fd = is_open() ? descriptor() : -1;
  abandon();  // first: fewer threads still use the number when it is free
  if (fd >= 0) uncancelled::close(fd);
}

bool Userfault::watch(MemoryRange range) const noexcept {
  if (!identity_.has_mark(descriptor())) return false;
  uffdio_register request{};
  request.range.start = range.addr;
  request.range.len = range.len;
  request.mode = UFFDIO_REGISTER_MODE_WP;
  // syscall() bypasses the hook of ioctl(), which has the monitor make room if a registration is refused.
  return syscall(SYS_ioctl, descriptor(), UFFDIO_REGISTER, &request) == 0 &&
         identity_.has_mark(descriptor());
}

bool Userfault::unwatch(MemoryRange range) const noexcept {
  uffdio_range request{range.addr, range.len};
  // Bypasses the hook, which has the caches forget the range.
  return syscall(SYS_ioctl, descriptor(), UFFDIO_UNREGISTER, &request) == 0;
}

// Makes an invalid request: the kernel checks for changes first (EAGAIN), and then refuses it (EINVAL).
int Userfault::probe() const noexcept {
  uffdio_writeprotect request{};
  request.range.start = 1;
  return ioctl(descriptor(), UFFDIO_WRITEPROTECT, &request) == 0 ? 0 : errno;
}

// Another userfaultfd of the program would give the same result, so the mark is checked. It is read after the
// probe: a descriptor that is ours now was ours then.
bool Userfault::change_under_way() const noexcept {
  return probe() != EINVAL || !identity_.has_mark(descriptor());
}

bool Userfault::usable() const noexcept {
  const int error = probe();
  return (error == EINVAL || error == EAGAIN) && identity_.is_for_certain(descriptor());
}

// A probe that the system refuses has another errno than those of other files (ENOTTY) and closed ones.
bool Userfault::is_open() const noexcept {
  const int error = probe();
  return error != ENOTTY && error != EBADF && identity_.is(descriptor());
}

bool Userfault::has_reports() const noexcept {
  pollfd reports{descriptor(), POLLIN, 0};
  return uncancelled::poll(&reports, 1, 0) > 0;
}

size_t Userfault::read(MemoryChange* changes, size_t n, int* error) const noexcept {
  uffd_msg messages[kAtOnce];
  const ssize_t got =
      uncancelled::read(descriptor(), messages, std::min(n, kAtOnce) * sizeof(uffd_msg));
  *error = got > 0 ? 0 : got < 0 ? errno : EAGAIN;
  if (got <= 0) return 0;
  size_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(uffd_msg); ++i) {
    const uffd_msg& m = messages[i];
    MemoryChange& out = changes[count];
    switch (m.event) {
      case UFFD_EVENT_UNMAP:
      case UFFD_EVENT_REMOVE:
        out.kind = m.event == UFFD_EVENT_UNMAP ? MemoryChange::Kind::kUnmapped
                                               : MemoryChange::Kind::kRemoved;
        out.range = {m.arg.remove.start, m.arg.remove.end - m.arg.remove.start};
        ++count;
        break;
      case UFFD_EVENT_REMAP:
        out.kind = MemoryChange::Kind::kMoved;
        out.range = {m.arg.remap.from, m.arg.remap.len};
        out.to = {m.arg.remap.to, m.arg.remap.len};
        ++count;
        break;
      default: break;
    }
  }
  return count;
}

}  // namespace hydrant
