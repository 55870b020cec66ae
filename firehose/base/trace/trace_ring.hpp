// A ring of records between one producer and one consumer at a time. The producer never waits and takes no
// lock. Positions only grow; a record's place is its position modulo the capacity.
#pragma once

#include "firehose/base/trace/trace_record.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

template <uint32_t kCapacity>
class TraceRing {
  static_assert((kCapacity & (kCapacity - 1)) == 0, "a power of two: the place is a mask");

 public:
  static constexpr uint32_t capacity() noexcept { return kCapacity; }

  // Producer. False: the ring is full, and nothing was written.
  bool push(const TraceRecord& record) noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - seen_tail_ == kCapacity) [[unlikely]] {
      // Acquire: the consumer has read the records before the tail.
      seen_tail_ = tail_.load(std::memory_order_acquire);
      if (head - seen_tail_ == kCapacity) return false;
    }
    records_[head & (kCapacity - 1)] = record;
    head_.store(head + 1, std::memory_order_release);  // publishes the record
    return true;
  }

  // Consumer. Calls take(record) for each record that was published before the call, oldest first; returns
  // their number. Frees the places in steps, so that a producer waits for few records at most.
  template <typename Take>
  uint64_t drain(Take&& take) noexcept {
    constexpr uint64_t kStep = kCapacity / 8 != 0 ? kCapacity / 8 : 1;
    const uint64_t head = head_.load(std::memory_order_acquire);
    const uint64_t first = tail_.load(std::memory_order_relaxed);
    for (uint64_t position = first; position != head; ++position) {
      take(records_[position & (kCapacity - 1)]);
      if ((position + 1 - first) % kStep == 0) tail_.store(position + 1, std::memory_order_release);
    }
    tail_.store(head, std::memory_order_release);
    return head - first;
  }

  // Producer: the number of records pushed so far.
  uint64_t position() const noexcept { return head_.load(std::memory_order_relaxed); }
  // Any thread; a moment's value.
  uint64_t used() const noexcept {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    return head_.load(std::memory_order_relaxed) - tail;
  }

 private:
  alignas(64) std::atomic<uint64_t> head_{0};  // written by the producer
  uint64_t seen_tail_ = 0;                     // the producer's copy of tail_
  alignas(64) std::atomic<uint64_t> tail_{0};  // written by the consumer
  alignas(64) TraceRecord records_[kCapacity];
};

}  // namespace hydrant
