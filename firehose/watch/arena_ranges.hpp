// The memory of allocators that announce it: pins of it need no watching.
//
// Invariant: cover() is true only for memory that lay in one announced range at some moment of the call.
//
// Threads: any, without a lock: allocators announce memory under their own locks, also while another thread
// forks.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class ArenaRanges {
 public:
  constexpr ArenaRanges() noexcept = default;

  // `kept`: pinned memory of it stays in place. False: the range is invalid, or there is no place.
  bool add(MemoryRange range, bool kept) noexcept;
  // No effect if exactly this range was not announced.
  void remove(MemoryRange range) noexcept;
  // True if the range lies in one announced range. `only_kept`: in one that is kept.
  bool cover(MemoryRange range, bool only_kept) const noexcept;

 private:
  static constexpr size_t kMax = 4096;

  struct Arena {
    std::atomic<uintptr_t> addr{0};  // 0: free
    std::atomic<size_t> len{0};
    std::atomic<bool> kept{false};
    std::atomic<uint64_t> version{0};  // odd while the other fields are being written
  };

  Arena ranges_[kMax];
  std::atomic<uint32_t> high_{0};
};

}  // namespace hydrant
