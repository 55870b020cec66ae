// A descriptor that the library keeps for long: used and closed only while it is still the file that was
// opened. A file that the program has opened under the same number after closing it is never touched. In the
// 0.1 us between check and use another thread of the program can still close the descriptor.
//
// Threads: get() and is_lost() from any thread, also in signal handlers; other functions while no other
// thread uses the object.
#pragma once

#include "firehose/base/file_identity.hpp"
#include "firehose/base/uncancelled.hpp"

#include <unistd.h>
#include <utility>

namespace hydrant {

class KeptDescriptor {
 public:
  constexpr KeptDescriptor() noexcept = default;
  explicit KeptDescriptor(int fd) noexcept { keep(fd); }
  ~KeptDescriptor() { close(); }
  KeptDescriptor(const KeptDescriptor&) = delete;
  KeptDescriptor& operator=(const KeptDescriptor&) = delete;
  KeptDescriptor(KeptDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), identity_(other.identity_) {}
  KeptDescriptor& operator=(KeptDescriptor&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::exchange(other.fd_, -1);
    identity_ = other.identity_;
    return *this;
  }

  // Takes ownership of `fd`; -1 for none.
  void keep(int fd) noexcept {
    close();
    fd_ = fd;
    if (fd >= 0) identity_.note(fd);
  }
  // -1 if there is none, or the program has closed it. Cost: two system calls, 0.22 us.
  int get() const noexcept { return fd_ >= 0 && identity_.is(fd_) ? fd_ : -1; }
  // Whether the program has closed the kept descriptor.
  bool is_lost() const noexcept { return fd_ >= 0 && !identity_.is(fd_); }
  // The kept number, even if it names another file now: for texts, and to check whether there was one.
  int number() const noexcept { return fd_; }
  void close() noexcept {
    if (const int fd = get(); fd >= 0) uncancelled::close(fd);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  FileIdentity identity_;
};

}  // namespace hydrant
