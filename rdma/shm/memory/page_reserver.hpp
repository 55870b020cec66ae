// Makes sure that a range of a memory file has its pages before anybody touches them: a page that cannot
// be had at a touch is a SIGBUS, one that cannot be had here is an error with figures.
#pragma once

#include "firehose/base/status.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::shm {

class PageReserver {
 public:
  // `root` is put before the paths of /proc and /sys, for tests.
  explicit PageReserver(const char* root = "") noexcept : root_(root) {}
  PageReserver(const PageReserver&) = delete;
  PageReserver& operator=(const PageReserver&) = delete;

  // Reserves [offset, offset+bytes) of `fd`; what is there already stays. `what` is for the text.
  // Errors: kResource: the memory control group, the machine or the kernel has too little.
  // Threads: any. Cost: a system call; every now and then a few small files are read.
  Status reserve(int fd, uint64_t offset, uint64_t bytes, const char* what) noexcept;

  // The same for pages that should be there: no limit is read.
  Status reserve_unchecked(int fd, uint64_t offset, uint64_t bytes, const char* what) noexcept;

  // What reserve() asks first: whether so many bytes may be had. Errors: as those of reserve().
  Status allow(uint64_t bytes, const char* what) noexcept;

  // What may still be had, and who limits it. Memory that files occupy counts as free.
  struct Available {
    uint64_t bytes = UINT64_MAX;
    char limited_by[300] = "";
  };
  Available available() const noexcept;

 private:
  const char* root_;
  // What may be reserved before the limits are read again. Near a limit that is at every call.
  std::atomic<uint64_t> unchecked_bytes_{0};  // relaxed: an estimate
};

}  // namespace hydrant::shm
