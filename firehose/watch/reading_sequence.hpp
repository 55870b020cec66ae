// The number of the reader's readings: whether changes have been read that a cache may not have forgotten.
//
// Invariant: the number is odd from before the reader reads changes until every cache has forgotten them. A
// call that released memory returns after its change was read. So a thread that returned from the call, or
// was notified by a thread that did, and then sees an even number, finds caches that have forgotten the
// memory.
//
// Threads: begin() and end() are the reader's; the others any, without a lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace hydrant {

class ReadingSequence {
 public:
  constexpr ReadingSequence() noexcept = default;

  void begin() noexcept {
    sequence_.store(sequence_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }
  void end() noexcept {
    sequence_.store(sequence_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Waits for the reading under way, if there is one. False at the deadline.
  bool settle(uint64_t timeout_ns) const noexcept;
  // The number at which the changes that are pending now, up to Userfault::kAtOnce of them, have been read
  // and passed to the caches.
  uint64_t next_reading_done() const noexcept {
    // A reading that is under way may have begun before they were pending: this waits for the next reading.
    return (sequence_.load(std::memory_order_seq_cst) + 3) & ~uint64_t{1};
  }
  bool has_reached(uint64_t number) const noexcept {
    return sequence_.load(std::memory_order_acquire) >= number;
  }
  // For readers outside of this copy of the library.
  const uint64_t* number() const noexcept { return reinterpret_cast<const uint64_t*>(&sequence_); }
  // The reader may have been at work during the fork: an odd number becomes even.
  void reset_in_child() noexcept {
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store((sequence + 1) & ~uint64_t{1}, std::memory_order_release);
  }

 private:
  alignas(64) std::atomic<uint64_t> sequence_{0};
};

}  // namespace hydrant
