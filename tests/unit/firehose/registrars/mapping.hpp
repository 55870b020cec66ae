// Memory of a test, real file descriptors, and the uring registrar or the reason why there is none.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugeBytes = size_t{2} << 20;

// Anonymous private memory on small pages, unmapped at the end.
class MappedPages {
 public:
  explicit MappedPages(size_t len, int protection = PROT_READ | PROT_WRITE, int flags = 0)
      : len_(len) {
    void* addr = mmap(nullptr, len, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (addr == MAP_FAILED) std::abort();
    addr_ = static_cast<std::byte*>(addr);
    madvise(addr_, len, MADV_NOHUGEPAGE);
  }
  ~MappedPages() { munmap(addr_, len_); }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  std::byte* data() const { return addr_; }
  size_t size() const { return len_; }
  MemoryRange all() const { return pages(0, len_ / kPageBytes); }
  MemoryRange pages(size_t first, size_t count) const {
    return {reinterpret_cast<uintptr_t>(addr_) + first * kPageBytes, count * kPageBytes};
  }
  void fill(char c) { std::memset(addr_, c, len_); }
  // Other memory at the same place.
  void replace(char c) {
    munmap(addr_, len_);
    void* again = mmap(addr_, len_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (again != addr_) std::abort();
    fill(c);
  }

 private:
  std::byte* addr_;
  size_t len_;
};

// A file without a name.
class TestFile {
 public:
  TestFile() : fd_(memfd_create("hydrant-test", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
  }
  ~TestFile() { close(fd_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  int fd() const { return fd_; }
  void write_all(const std::string& text) {
    if (pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) std::abort();
  }
  std::string read(size_t len, off_t offset = 0) const {
    std::string text(len, '\0');
    const ssize_t n = pread(fd_, text.data(), len, offset);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }

 private:
  int fd_;
};

// A registrar, or null with the reason in last_error_text().
inline std::unique_ptr<UringRegistrar> try_uring(const UringOptions& options = {}) {
  auto status = Status::kOk;
  return make_uring_registrar(options, &status);
}

struct Key {
  std::vector<std::byte> bytes = std::vector<std::byte>(64);
  std::byte* data() { return bytes.data(); }
};

// A pin that worked, with what is needed to undo it.
struct HeldPin {
  MemoryRange range;
  Key key;
};

}  // namespace hydrant::testing

// `name` becomes a std::unique_ptr<UringRegistrar>; the test is skipped where io_uring is not allowed.
#define HYDRANT_URING_OR_SKIP(name, ...)                  \
  const std::unique_ptr<::hydrant::UringRegistrar> name = \
      ::hydrant::testing::try_uring(__VA_ARGS__);         \
  if (name == nullptr) GTEST_SKIP() << "no uring here: " << ::hydrant::last_error_text()
