// A userfaultfd as another component of the program has one.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {

class OwnUserfault {
 public:
  OwnUserfault()
      : fd_(static_cast<int>(
            syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY))) {
    uffdio_api api{};
    api.api = UFFD_API;
    if (fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) != 0) ADD_FAILURE() << "no userfaultfd";
  }
  ~OwnUserfault() {
    if (fd_ >= 0) close(fd_);
  }
  OwnUserfault(const OwnUserfault&) = delete;
  OwnUserfault& operator=(const OwnUserfault&) = delete;

  int descriptor() const { return fd_; }
  // 0, or errno.
  int watch(const void* addr, size_t len) const {
    uffdio_register request{};
    request.range = {reinterpret_cast<uintptr_t>(addr), len};
    request.mode = UFFDIO_REGISTER_MODE_MISSING;
    return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

}  // namespace hydrant::testing
