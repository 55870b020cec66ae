// Computes the kernel's charge for pinning part of a huge page: the whole huge page. Finds out cheaply and
// approximately whether the edges of a range lie in huge pages.
//
// It queries the kernel (PAGEMAP_SCAN, Linux 6.7) and caches the result per huge page for about 0.1 s. In
// some cases the charge is understated as the plain length: kernels before 6.7; memory that the pin itself
// touches first and that then becomes huge; folios between a page and a huge page; 1-GiB pages beyond their
// part of 2 MiB. An understatement causes a refused pin (kNotReady), never a wrong one.
#pragma once

#include "firehose/base/file_identity.hpp"
#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class HugePages {
 public:
  HugePages() noexcept;
  ~HugePages();
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // `range.len`, plus the rest of the huge pages at its two ends. Any thread.
  // Cost: zero for ranges of whole huge pages; else about 10 ns per end, 0.6 us for a query of the kernel.
  uint64_t charge(MemoryRange range) const noexcept;

  // True if the kernel can be queried. If the program closes the descriptor, all pages count as small.
  bool known() const noexcept { return pagemap_fd_.load(std::memory_order_relaxed) >= 0; }
  size_t huge_bytes() const noexcept { return size_t{1} << huge_shift_; }

  // For the child of a fork: replaces the descriptor, which shows the parent's memory. Async-signal-safe.
  void reopen_in_child() noexcept;

 private:
  void keep(int fd) noexcept;
  bool is_huge(uintptr_t addr) const noexcept;
  bool ask_kernel(uintptr_t addr) const noexcept;

  // A word per entry: block number, time of the query, result. Relaxed, by any thread: a word is complete
  // in itself, and a lost one costs one query.
  static constexpr size_t kEntries = 1024;
  mutable std::atomic<uint64_t> entries_[kEntries] = {};
  // Relaxed: written only at construction and in the single thread of a forked child.
  std::atomic<int> pagemap_fd_{-1};
  FileIdentity identity_;  // of pagemap_fd_; written with it
  uint32_t huge_shift_ = 21;
};

}  // namespace hydrant
