// Memory for the benchmarks: reserved address space, and resident pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::bench {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kGiB = 1024 * kMiB;  // bandwidths are printed in GiB/s
constexpr size_t kHugePageBytes = 2 * kMiB;

inline size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

[[noreturn]] inline void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

enum class PageKind { kReserved, kSmall, kHuge };

inline const char* page_kind_name(PageKind kind) {
  if (kind == PageKind::kReserved) return "reserved";
  return kind == PageKind::kHuge ? "huge" : "small";
}

// A private anonymous mapping that starts on a huge-page boundary. kReserved has no pages and no access. The
// others are touched once, so that measurements include no page fault.
class Memory {
 public:
  Memory(size_t bytes, PageKind kind)
      : bytes_(bytes), mapped_bytes_((bytes + 2 * kHugePageBytes - 1) & ~(kHugePageBytes - 1)) {
    const int protection = kind == PageKind::kReserved ? PROT_NONE : PROT_READ | PROT_WRITE;
    mapping_ = mmap(nullptr, mapped_bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (mapping_ == MAP_FAILED) die("mmap of benchmark memory");
    const auto raw = reinterpret_cast<uintptr_t>(mapping_);
    start_ = (raw + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
    if (kind == PageKind::kReserved) return;
    madvise(mapping_, mapped_bytes_, kind == PageKind::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(data(), 0x5a, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(mapping_, mapped_bytes_); }

  std::byte* data() const { return reinterpret_cast<std::byte*>(start_); }
  std::byte* at(size_t offset) const { return data() + offset; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  size_t mapped_bytes_;
  void* mapping_ = nullptr;
  uintptr_t start_ = 0;
};

// Bytes of this process in transparent huge pages; 0 if the kernel does not report it.
inline size_t huge_page_bytes_in_use() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  if (file == nullptr) return 0;
  char line[256];
  size_t kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "AnonHugePages: %zu kB", &kib) == 1) break;
  }
  std::fclose(file);
  return kib * kKiB;
}

}  // namespace hydrant::bench
