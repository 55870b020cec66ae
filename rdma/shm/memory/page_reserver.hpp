// Allocates the pages of a range of a memory file before their first access. A page that cannot be allocated
// raises SIGBUS at an access, but returns an error with figures here.
#pragma once

#include "firehose/base/status.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::shm {

class PageReserver {
 public:
  // `root` is prepended to the paths of /proc and /sys, for tests.
  explicit PageReserver(const char* root = "") noexcept : root_(root) {}
  PageReserver(const PageReserver&) = delete;
  PageReserver& operator=(const PageReserver&) = delete;

  // Reserves [offset, offset+bytes) of `fd`; existing pages stay. `what` is for the error text.
  // Errors: kResource: the memory control group, the machine or the kernel has too little.
  // Threads: any. Cost: a system call; every now and then a few small files are read.
  Status reserve(int fd, uint64_t offset, uint64_t bytes, const char* what) noexcept;

  // As reserve(), for pages that should exist already: no limit is checked.
  Status reserve_unchecked(int fd, uint64_t offset, uint64_t bytes, const char* what) noexcept;

  // The check that reserve() makes first: may so many bytes be allocated? Errors: as those of reserve().
  Status allow(uint64_t bytes, const char* what) noexcept;

  // The memory that may still be allocated, and the limit that applies. Memory that files occupy counts as
  // free.
  struct Available {
    uint64_t bytes = UINT64_MAX;
    char limited_by[300] = "";
  };
  Available available() const noexcept;

 private:
  const char* root_;
  // Bytes that may be reserved before the limits are read again; close to a limit, every call reads them.
  std::atomic<uint64_t> unchecked_bytes_{0};  // relaxed: an estimate
};

}  // namespace hydrant::shm
