// Acts as a program that closes descriptors that it did not open, and reuses their numbers. For a child
// process only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {

inline bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// The inode of the descriptor's file; 0 if it is closed.
inline ino_t inode_of(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

// Records the program's descriptors; later ones belong to the library.
class OwnDescriptors {
 public:
  OwnDescriptors() {
    for (int fd = 0; fd < kMax; ++fd) {
      if (is_open(fd)) mine_.push_back(fd);
    }
  }
  // The numbers of all other descriptors.
  std::vector<int> others() const {
    std::vector<int> found;
    for (int fd = 0; fd < kMax; ++fd) {
      if (is_open(fd) && std::find(mine_.begin(), mine_.end(), fd) == mine_.end())
        found.push_back(fd);
    }
    return found;
  }
  // Closes all other descriptors, as close_range() would, and answers their numbers.
  std::vector<int> close_others() const {
    std::vector<int> closed;
    for (int fd = 0, i = 0; fd < kMax; ++fd) {
      if (i < static_cast<int>(mine_.size()) && mine_[static_cast<size_t>(i)] == fd) {
        ++i;
      } else if (close(fd) == 0) {
        closed.push_back(fd);
      }
    }
    return closed;
  }
  // Calls open(), which answers a descriptor, until all these numbers are in use. Answers what it opened.
  static std::vector<int> fill(const std::vector<int>& numbers, const std::function<int()>& open) {
    std::vector<int> opened;
    const auto all_taken = [&] {
      for (const int number : numbers) {
        if (!is_open(number)) return false;
      }
      return true;
    };
    while (!all_taken() && opened.size() < kMax) opened.push_back(open());
    return opened;
  }

 private:
  static constexpr int kMax = 512;
  std::vector<int> mine_;
};

// The program's files under former numbers of the library: eventfds, which reveal every use.
// System calls put them there and close them: ThreadSanitizer would report a race with the library that looks
// at the number.
class ProgramsFiles {
 public:
  // Closes the files that have these numbers.
  explicit ProgramsFiles(const std::vector<int>& numbers) : numbers_(numbers) {
    for (const int number : numbers_) {
      const int made = eventfd(kCount, EFD_SEMAPHORE | EFD_NONBLOCK);
      if (made != number && syscall(SYS_dup3, made, number, 0) != number)
        problem_ = "no file under " + std::to_string(number);
      if (made != number) close(made);
    }
  }
  ~ProgramsFiles() {
    for (const int number : numbers_) syscall(SYS_close, number);
  }
  ProgramsFiles(const ProgramsFiles&) = delete;
  ProgramsFiles& operator=(const ProgramsFiles&) = delete;

  // Describes a change to one of them by other code, or "".
  std::string harm() const {
    for (const int number : numbers_) {
      const std::string name = "descriptor " + std::to_string(number);
      if (!is_open(number)) return name + " was closed";
      if (fcntl(number, F_GETSIG) != 0) return name + " was marked";
      if ((fcntl(number, F_GETFL) & O_NONBLOCK) == 0) return name + " has other flags";
      uint64_t count = 0;
      uint64_t one = 0;
      while (read(number, &one, sizeof one) == sizeof one) ++count;
      if (count != kCount) return name + " was used: " + std::to_string(count);
      if (write(number, &count, sizeof count) != sizeof count) return name + " cannot be written";
    }
    return problem_;
  }

 private:
  static constexpr unsigned kCount = 3;
  const std::vector<int> numbers_;
  std::string problem_;
};

}  // namespace hydrant::testing
