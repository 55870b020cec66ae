// Queries the kernel's page map for huge pages and caches the results. UringRegistrar::charge() calls it.
#include "firehose/registrars/charge/huge_pages.hpp"

#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/uncancelled.hpp"

#include <bit>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Linux 6.7's PAGEMAP_SCAN (Documentation/admin-guide/mm/pagemap.rst). Defined here because Debian 12's
// headers lack it.
struct PageRegion {
  uint64_t start, end, categories;
};
struct PagemapScan {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
constexpr uint64_t kPageIsHuge = 1u << 6;
constexpr unsigned long kPagemapScan = _IOWR('f', 16, PagemapScan);

constexpr uint32_t kTimeBits = 27;
constexpr uint64_t kTimeMask = (uint64_t{1} << kTimeBits) - 1;
// Units of 2^26 ns: a result is valid in its own unit and the next, 67 to 134 ms.
constexpr uint32_t kTimeShift = 26;

// May be 0, like an unwritten entry: harmless, see is_huge().
uint64_t coarse_time() noexcept {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  const uint64_t ns =
      static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
  return (ns >> kTimeShift) & kTimeMask;
}

int open_pagemap() noexcept {
  return uncancelled::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

bool scan(int fd, uintptr_t page, size_t page_bytes, bool* huge) noexcept {
  PageRegion region{};
  PagemapScan arg{};
  arg.size = sizeof arg;
  arg.start = page;
  arg.end = page + page_bytes;
  arg.vec = reinterpret_cast<uintptr_t>(&region);
  arg.vec_len = 1;
  arg.max_pages = 1;
  arg.category_mask = kPageIsHuge;
  arg.return_mask = kPageIsHuge;
  const int found = ioctl(fd, kPagemapScan, &arg);
  if (found < 0) return false;
  *huge = found > 0;
  return true;
}

size_t page_bytes() noexcept { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

HugePages::HugePages() noexcept {
  char text[32];
  (void)read_small_file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text);
  const uint64_t bytes = std::strtoull(text, nullptr, 10);
  if (std::has_single_bit(bytes) && bytes >= page_bytes())
    huge_shift_ = static_cast<uint32_t>(std::countr_zero(bytes));
  const int fd = open_pagemap();
  bool huge = false;
  const size_t page = page_bytes();
  if (fd >= 0 && !scan(fd, reinterpret_cast<uintptr_t>(&huge) & ~(page - 1), page, &huge)) {
    uncancelled::close(fd);
    return;
  }
  keep(fd);
}

// A descriptor that cannot be recognised later is not kept.
void HugePages::keep(int fd) noexcept {
  identity_.note(fd);
  if (identity_.is_hidden(fd)) {
    uncancelled::close(fd);
    fd = -1;
  }
  pagemap_fd_.store(fd, std::memory_order_relaxed);
}

HugePages::~HugePages() {
  const int fd = pagemap_fd_.load(std::memory_order_relaxed);
  if (identity_.is(fd))
    uncancelled::close(fd);  // not a file that the program has opened under its number
}

void HugePages::reopen_in_child() noexcept {
  const int fd = pagemap_fd_.load(std::memory_order_relaxed);
  if (fd < 0) return;
  if (identity_.is(fd)) uncancelled::close(fd);
  keep(open_pagemap());
}

uint64_t HugePages::charge(MemoryRange range) const noexcept {
  const uintptr_t mask = huge_bytes() - 1;
  const uintptr_t before = range.addr & mask;
  const uintptr_t after = mask - (range.last() & mask);
  uint64_t bytes = range.len;
  if (!known()) return bytes;
  if (before != 0 && is_huge(range.addr)) bytes += before;
  if (after != 0 && is_huge(range.last())) bytes += after;
  return bytes;
}

bool HugePages::is_huge(uintptr_t addr) const noexcept {
  const uint64_t block = addr >> huge_shift_;
  const uint64_t now = coarse_time();
  std::atomic<uint64_t>& entry = entries_[(block ^ (block >> 10)) % kEntries];
  const uint64_t word = entry.load(std::memory_order_relaxed);
  const uint64_t age = (now - (word >> 1)) & kTimeMask;
  // An unwritten entry looks like block 0, where no memory can be mapped.
  if (word >> (kTimeBits + 1) == block && age <= 1) return (word & 1) != 0;
  const bool huge = ask_kernel(addr);
  entry.store(block << (kTimeBits + 1) | now << 1 | (huge ? 1u : 0u), std::memory_order_relaxed);
  return huge;
}

bool HugePages::ask_kernel(uintptr_t addr) const noexcept {
  bool huge = false;
  const size_t page = page_bytes();
  const int fd = pagemap_fd_.load(std::memory_order_relaxed);
  const bool scanned = scan(fd, addr & ~(page - 1), page, &huge);
  return scanned && huge &&
         identity_.has_mark(fd);  // the descriptor may name another process's page map by now
}

}  // namespace hydrant
