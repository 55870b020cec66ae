// Memory of a test that is mapped, unmapped, moved and mapped again in one place that nobody else gets.
#pragma once

#include "tests/support/test_registrar.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/mman.h>

namespace hydrant::testing {

// Pages between two inaccessible ones, a mapping of their own in the kernel's eyes. While they are unmapped
// the addresses are free for anybody; map() answers whether it got them back.
class MappedMemory {
 public:
  // Without pages: reserved, inaccessible.
  explicit MappedMemory(size_t pages);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  size_t pages() const { return pages_; }
  size_t bytes() const { return pages_ * kPage; }
  std::byte* page(size_t i = 0) const { return begin_ + i * kPage; }
  uintptr_t addr(size_t i = 0) const { return reinterpret_cast<uintptr_t>(page(i)); }

  // Replaces what is there by private anonymous memory, or by a file's, in one call.
  void replace(size_t page, size_t n, int protection = PROT_READ | PROT_WRITE);
  void replace_by_file(size_t page, size_t n, int fd, int flags = MAP_SHARED);
  void unmap(size_t page, size_t n);
  // Private anonymous memory where nothing is mapped. False if somebody else is there.
  [[nodiscard]] bool map(size_t page, size_t n);
  // The test has unmapped or moved these itself: they are nobody's, or not ours any more.
  void disown(size_t page, size_t n) { set_mine(page, n, false); }

 private:
  void set_mine(size_t page, size_t n, bool mine);

  size_t pages_;
  std::byte* begin_;
  // By page: to be unmapped at the end. Threads may share out the pages.
  std::unique_ptr<std::atomic<bool>[]> mine_;
};

// A file without a name, of so many pages. Closes itself.
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

// "" where this process may have a userfaultfd, asked of the kernel and not of the library; else why not.
std::string why_no_userfaultfd();

// For a child process only: from now on the system call answers `error`. With ioctl_request not 0 only that
// request of ioctl() does. With error 0 it ends the process. "" or why not.
std::string refuse_system_call(long number, int error, uint32_t ioctl_request = 0);

}  // namespace hydrant::testing

// First line of a test that needs the kernel's reports.
#define HYDRANT_NEEDS_USERFAULTFD()                                           \
  do {                                                                        \
    const std::string refusal = ::hydrant::testing::why_no_userfaultfd();     \
    if (!refusal.empty()) GTEST_SKIP() << "no userfaultfd here: " << refusal; \
  } while (false)
