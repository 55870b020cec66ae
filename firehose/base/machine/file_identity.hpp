// Checks that a descriptor still names the file that the library opened. Programs close descriptors that they
// did not open (close_range(), a loop over all numbers) and open other files under the same numbers. The
// library checks before each use that changes state and before close. A read-only query may be checked
// afterwards, which leaves no race.
//
// Device and inode identify files that have their own inode: rings (on all Linux versions with sparse
// tables), userfaultfds since Linux 5.12, sockets, memfds. Files of /proc and anonymous files share inodes; a
// mark on the open file identifies them: the signal of F_SETSIG, which has no effect without O_ASYNC. The
// mark is one of 62 values, derived from the inode.
#pragma once

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/stat.h>

namespace hydrant {

class FileIdentity {
 public:
  constexpr FileIdentity() noexcept = default;

  // Records the identity of `fd`, in place of any earlier record. Marks the open file, so only the library's
  // own files may be noted.
  void note(int fd) noexcept {
    note_file(fd);
    mark_ = kFirstMark + static_cast<int>(inode_ % kMarks);
    marked_ = known_ && fcntl(fd, F_SETSIG, mark_) == 0 && fcntl(fd, F_GETSIG) == mark_;
  }
  // Records the identity without marking the file: for files of the program, whose signal is the program's to
  // set.
  void note_file(int fd) noexcept {
    struct stat facts {};
    known_ = fstat(fd, &facts) == 0;
    device_ = facts.st_dev;
    inode_ = facts.st_ino;
    marked_ = false;
  }
  // The functions below return false if nothing was recorded. All are async-signal-safe.

  // The strongest check: inode and mark. Cost: two system calls, 0.25 us.
  bool is(int fd) const noexcept { return is_file(fd) && (!marked_ || has_mark(fd)); }
  // Compares the inode alone, or the mark alone, where the system refuses the call for the other. For files
  // that the caller knows in another way as well.
  bool may_be(int fd) const noexcept {
    if (is(fd)) return true;
    struct stat facts {};
    if (fd < 0 || !known_) return false;
    if (fstat(fd, &facts) != 0) return errno != EBADF && marked_ && has_mark(fd);
    return is_file(fd) && fcntl(fd, F_GETSIG) < 0 && errno != EBADF;
  }
  // Compares device and inode: for files with their own inode. Cost: a system call, 0.16 us.
  bool is_file(int fd) const noexcept {
    struct stat facts {};
    return known_ && fd >= 0 && fstat(fd, &facts) == 0 && facts.st_dev == device_ &&
           facts.st_ino == inode_;
  }
  // Compares the mark alone: the program's own files have none. Cost: the cheapest system call, 0.09 us.
  bool has_mark(int fd) const noexcept {
    return marked_ ? fcntl(fd, F_GETSIG) == mark_ : is_file(fd);
  }

 private:
  static constexpr int kFirstMark = 2;
  static constexpr uint64_t kMarks = 62;

  dev_t device_ = 0;
  ino_t inode_ = 0;
  int mark_ = 0;
  bool known_ = false;
  bool marked_ = false;
};

}  // namespace hydrant
