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
    mark_ = kFirstMark + static_cast<int>((known_ ? inode_ : static_cast<ino_t>(fd)) % kMarks);
    marked_ = fcntl(fd, F_SETSIG, mark_) == 0 && fcntl(fd, F_GETSIG) == mark_;
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
  // The functions below return false if nothing was recorded. Where the system refuses a call (a seccomp
  // filter), the other decides. All are async-signal-safe.

  // The strongest check: inode and mark. Cost: two system calls, 0.25 us.
  bool is(int fd) const noexcept {
    const Answer file = compare_file(fd);
    if (file == Answer::kOther) return false;
    const Answer mark = compare_mark(fd);
    return mark == Answer::kSame || (mark == Answer::kRefused && file == Answer::kSame);
  }
  // The check of is() without its leniency: a refused call makes it false.
  bool is_for_certain(int fd) const noexcept {
    return compare_file(fd) == Answer::kSame && (!marked_ || compare_mark(fd) == Answer::kSame);
  }
  // Compares device and inode: for files with their own inode. Cost: a system call, 0.16 us.
  bool is_file(int fd) const noexcept {
    const Answer file = compare_file(fd);
    return file == Answer::kRefused ? compare_mark(fd) == Answer::kSame : file == Answer::kSame;
  }
  // Compares the mark alone: the program's own files have none. Cost: the cheapest system call, 0.09 us.
  bool has_mark(int fd) const noexcept {
    const Answer mark = compare_mark(fd);
    return mark == Answer::kRefused ? compare_file(fd) == Answer::kSame : mark == Answer::kSame;
  }
  // Both calls are refused, or were when the file was noted: nothing is known of an open file.
  bool is_hidden(int fd) const noexcept {
    return compare_mark(fd) == Answer::kRefused && compare_file(fd) == Answer::kRefused;
  }

 private:
  enum class Answer : uint8_t { kOther, kSame, kRefused };
  static Answer refusal() noexcept { return errno == EBADF ? Answer::kOther : Answer::kRefused; }
  static Answer answer(bool is_same) noexcept { return is_same ? Answer::kSame : Answer::kOther; }
  Answer compare_file(int fd) const noexcept {
    struct stat facts {};
    if (fd < 0) return Answer::kOther;
    if (!known_) return Answer::kRefused;
    if (fstat(fd, &facts) != 0) return refusal();
    return answer(facts.st_dev == device_ && facts.st_ino == inode_);
  }
  Answer compare_mark(int fd) const noexcept {
    if (fd < 0) return Answer::kOther;
    if (!marked_) return Answer::kRefused;
    const int mark = fcntl(fd, F_GETSIG);
    return mark < 0 ? refusal() : answer(mark == mark_);
  }

  static constexpr int kFirstMark = 2;
  static constexpr uint64_t kMarks = 62;

  dev_t device_ = 0;
  ino_t inode_ = 0;
  int mark_ = 0;
  bool known_ = false;
  bool marked_ = false;
};

}  // namespace hydrant
