// Opens a memory file of another process through /proc, and checks that it is the file that the key names and
// cannot shrink. attachment_cache.cpp calls it before it maps an attachment.
#include "rdma/shm/memory/peer_file.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/exit/process_exit.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) uncancelled::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

Status not_opened(const ShmBlob& blob, int error) noexcept {
  switch (error) {
    case ESRCH:
      return fail(Status::kBroken, "the memory of process %u cannot be mapped: the process is gone",
                  blob.process);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EINTR:
      return fail(Status::kNotReady, "memory of process %u cannot be opened now: %s", blob.process,
                  errno_text(error));
    case ENOENT:
      return fail(Status::kRefused,
                  "/proc/%u/fd/%u does not exist: the process has closed the file, or /proc is not "
                  "mounted or hides processes",
                  blob.process, blob.descriptor);
    case EACCES:
    case EPERM:
      return fail(Status::kRefused,
                  "the kernel forbids to open /proc/%u/fd/%u: %s. The process must be of the same "
                  "user, and dumpable (PR_SET_DUMPABLE), and no security module against it",
                  blob.process, blob.descriptor, errno_text(error));
    default:
      return fail(Status::kRefused, "/proc/%u/fd/%u cannot be opened: %s", blob.process,
                  blob.descriptor, errno_text(error));
  }
}

// The caller checks the start time before and after it opens the file: the pid may be reused in between.
Status check_process(const ShmBlob& blob) noexcept {
  const uint64_t start = process_start_time(static_cast<pid_t>(blob.process));
  if (start == blob.start_time && start != 0) return Status::kOk;
  return fail(
      Status::kBroken,
      "the memory of process %u cannot be mapped: the process is gone, or is not visible here "
      "(another PID namespace, no /proc)",
      blob.process);
}

Status check_file(int fd, const ShmBlob& blob, uint64_t* bytes) noexcept {
  struct stat file {};
  if (fstat(fd, &file) != 0) return not_opened(blob, errno);
  if (file.st_dev != blob.device || file.st_ino != blob.inode || !S_ISREG(file.st_mode)) {
    return fail(Status::kRefused,
                "descriptor %u of process %u is another file by now, not the memory that was to be "
                "mapped",
                blob.descriptor, blob.process);
  }
  constexpr uint64_t kMask = kMinPageBytes - 1;
  const auto size = static_cast<uint64_t>(file.st_size);
  *bytes = (size + kMask) & ~kMask;
  if (blob.offset > *bytes || blob.range.len > *bytes - blob.offset) {
    return fail(Status::kRefused,
                "%zu bytes at %llu are not in the memory file of process %u, which has %llu",
                blob.range.len, static_cast<unsigned long long>(blob.offset), blob.process,
                static_cast<unsigned long long>(size));
  }
  return Status::kOk;
}

Status check_seals(int fd, const ShmBlob& blob, bool writable) noexcept {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(Status::kRefused,
                "descriptor %u of process %u is no memory file that keeps its size (F_SEAL_SHRINK)",
                blob.descriptor, blob.process);
  }
  struct statfs system {};
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return fail(Status::kRefused,
                "descriptor %u of process %u is a memory file of huge pages: mapping it risks "
                "SIGBUS when these run out",
                blob.descriptor, blob.process);
  }
  if (writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return fail(Status::kRefused, "the memory file of process %u is sealed against writing",
                blob.process);
  }
  return Status::kOk;
}

}  // namespace

Status open_peer_file(const ShmBlob& blob, bool writable, PeerFile* file) noexcept {
  if (const Status status = check_process(blob); status != Status::kOk) return status;
  char path[64];
  (void)std::snprintf(path, sizeof path, "/proc/%u/fd/%u", blob.process, blob.descriptor);
  // Checked by O_PATH first: a real open of a pipe or a device may block, or have side effects.
  const Descriptor seen(uncancelled::open(path, O_PATH | O_CLOEXEC));
  if (seen.get() < 0) return not_opened(blob, errno);
  uint64_t bytes = 0;
  if (const Status status = check_file(seen.get(), blob, &bytes); status != Status::kOk)
    return status;
  if (const Status status = check_process(blob); status != Status::kOk) return status;
  (void)std::snprintf(path, sizeof path, "/proc/self/fd/%d", seen.get());
  Descriptor opened(
      uncancelled::open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.get() < 0) return not_opened(blob, errno);
  // The seals are checked before the size: from here on the size cannot shrink.
  Status status = check_seals(opened.get(), blob, writable);
  if (status == Status::kOk) status = check_file(opened.get(), blob, &bytes);
  if (status != Status::kOk) return status;
  *file = {opened.release(), bytes};
  return Status::kOk;
}

}  // namespace hydrant::shm
