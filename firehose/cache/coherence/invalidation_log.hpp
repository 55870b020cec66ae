// A numbered ring of the last ranges of registered memory that were released. A target of remote pins reads
// it to find the grants that it has to revoke.
//
// Invariant: range n, counted from 0, is in place n % kKept until range n + kKept begins. Written under one
// lock. Read without it: count() is one load. A reader whose next range was overwritten before or during the
// read treats all memory as released.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class InvalidationLog {
 public:
  static constexpr uint64_t kKept = 256;

  // Under the writer's lock.
  void add(MemoryRange range) noexcept {
    // Relaxed: the lock orders the writers.
    const uint64_t n = count_.load(std::memory_order_relaxed);
    begun_.store(n + 1, std::memory_order_relaxed);
    // Release: a thread that reads one of these words also sees that the write had begun. (A reader that gets
    // one new and one old word has acquired the new one; one that gets two old ones has read the range of
    // its number.)
    ring_[n % kKept].addr.store(range.addr, std::memory_order_release);
    ring_[n % kKept].len.store(range.len, std::memory_order_release);
    count_.store(n + 1, std::memory_order_seq_cst);
  }

  // Number of ranges so far. seq_cst, as for the number of exports: one thread releases memory and then reads
  // the exports, another exports and then reads this log; at least one of them sees the other.
  uint64_t count() const noexcept { return count_.load(std::memory_order_seq_cst); }

  // The range of number `n`, from 0. Requires: n < count().
  MemoryRange at(uint64_t n) const noexcept {
    const MemoryRange range{ring_[n % kKept].addr.load(std::memory_order_acquire),
                            ring_[n % kKept].len.load(std::memory_order_acquire)};
    // Relaxed: the acquires above keep it behind them.
    if (begun_.load(std::memory_order_relaxed) > n + kKept) return {0, SIZE_MAX};
    return range;
  }

  // True if any of the ranges from number `from` to before `to` overlaps this one, or may.
  bool overlaps(MemoryRange range, uint64_t from, uint64_t to) const noexcept {
    if (to - from > kKept) return true;
    for (uint64_t n = from; n != to; ++n) {
      if (at(n).overlaps(range)) return true;
    }
    return false;
  }

 private:
  struct Range {
    std::atomic<uintptr_t> addr{0};
    std::atomic<size_t> len{0};
  };
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> begun_{0};  // as count_, before the range is written
  Range ring_[kKept];
};

}  // namespace hydrant
