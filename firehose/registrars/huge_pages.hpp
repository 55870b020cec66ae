// How much the kernel charges for pinning part of a huge page: all of it. Answers, cheaply and
// approximately, whether the edges of a range lie in huge pages.
//
// Known by asking the kernel (PAGEMAP_SCAN, Linux 6.7) and remembering the answer per huge page for
// about 0.1 s. Not seen, so that the charge is then understated as the plain length: kernels before 6.7,
// memory that becomes huge when it is first touched by the pin itself, folios between a page and a
// huge page, and 1-GiB pages beyond their part of 2 MiB. An understatement costs a refused pin
// (kNotReady), never a wrong one.
#pragma once

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
  // Cost: nothing for ranges of whole huge pages; else about 10 ns an end, 0.5 us when it must ask.
  uint64_t charge(MemoryRange range) const noexcept;

  // Whether the kernel can be asked at all.
  bool known() const noexcept { return pagemap_fd_.load(std::memory_order_relaxed) >= 0; }
  size_t huge_bytes() const noexcept { return size_t{1} << huge_shift_; }

  // The child of a fork: the descriptor shows the parent's memory, so another is opened.
  // Async-signal-safe.
  void reopen_in_child() noexcept;

 private:
  bool is_huge(uintptr_t addr) const noexcept;
  bool ask_kernel(uintptr_t addr) const noexcept;

  // One word per entry: block number, when it was asked, the answer. Written and read relaxed by any
  // thread: a word is complete in itself, and losing one costs a question.
  static constexpr size_t kEntries = 1024;
  mutable std::atomic<uint64_t> entries_[kEntries] = {};
  // Written at construction and in the only thread of a fork's child; relaxed for that reason.
  std::atomic<int> pagemap_fd_{-1};
  uint32_t huge_shift_ = 21;
};

}  // namespace hydrant
