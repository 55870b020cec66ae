// The blocks of the address space in which a cache has pinned memory. Hooks that hand out memory elsewhere
// need not wait.
//
// Invariant: a block is marked before memory that is pinned in it can be released, and stays marked.
//
// Threads: any, without a lock. Async-signal-safe.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class PinnedBlocks {
 public:
  constexpr PinnedBlocks() noexcept = default;

  // Makes room for the marks, which are kept over a fork(). False without address space. Requires: called
  // once, unless it fails.
  [[nodiscard]] bool map() noexcept;
  bool is_mapped() const noexcept { return is_mapped_.load(std::memory_order_acquire); }
  // Marks the blocks of the range. No effect before map().
  void note(MemoryRange range) noexcept;
  // A bit for each block of 2^HYDRANT_MONITOR_BLOCK_SHIFT bytes of user addresses; null before map().
  const uint64_t* words() const noexcept {
    return reinterpret_cast<const uint64_t*>(words_.data());
  }

 private:
  MappedArray<std::atomic<uint64_t>> words_;
  std::atomic<bool> is_mapped_{false};  // never reset
};

}  // namespace hydrant
