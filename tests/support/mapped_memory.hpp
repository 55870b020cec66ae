// Test memory that is mapped, unmapped, moved and mapped again at addresses that no other code uses.
#pragma once

#include "tests/support/recording_registrar.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/mman.h>

namespace hydrant::testing {

// Pages between two inaccessible ones, a separate mapping for the kernel. While they are unmapped other code
// could take the addresses; map() answers whether it got them back.
class MappedMemory {
 public:
  // Initially without pages: reserved and inaccessible.
  explicit MappedMemory(size_t pages);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  size_t pages() const { return pages_; }
  size_t bytes() const { return pages_ * kPage; }
  std::byte* page(size_t i = 0) const { return begin_ + i * kPage; }
  uintptr_t addr(size_t i = 0) const { return reinterpret_cast<uintptr_t>(page(i)); }

  // Replaces the pages by private anonymous memory, or by a file's pages, in one system call.
  void replace(size_t page, size_t n, int protection = PROT_READ | PROT_WRITE);
  void replace_by_file(size_t page, size_t n, int fd, int flags = MAP_SHARED);
  void unmap(size_t page, size_t n);
  // Maps private anonymous memory at unmapped addresses. False if they are in use.
  [[nodiscard]] bool map(size_t page, size_t n);
  // Tells the object that the test itself has unmapped or moved these pages.
  void disown(size_t page, size_t n) { set_mine(page, n, false); }

 private:
  void set_mine(size_t page, size_t n, bool mine);

  size_t pages_;
  std::byte* begin_;
  // By page: unmap it in the destructor. Different threads may use different pages.
  std::unique_ptr<std::atomic<bool>[]> mine_;
};

// A memory file of `pages` pages. The destructor closes it.
class MemoryFile {
 public:
  explicit MemoryFile(size_t pages);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// "" if this process may open a userfaultfd, according to the kernel; else the reason.
std::string why_no_userfaultfd();

// For a child process only: makes the system call fail with `error` from now on, or kill the process if
// `error` is 0. If ioctl_request is not 0, only that request of ioctl(). "" or the reason of a failure.
std::string refuse_system_call(long number, int error, uint32_t ioctl_request = 0);

}  // namespace hydrant::testing

// First line of a test that needs the kernel's reports.
#define HYDRANT_NEEDS_USERFAULTFD()                                           \
  do {                                                                        \
    const std::string refusal = ::hydrant::testing::why_no_userfaultfd();     \
    if (!refusal.empty()) GTEST_SKIP() << "no userfaultfd here: " << refusal; \
  } while (false)
