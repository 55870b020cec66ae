// Posting, checking and dropping a hold: the protocol that lets a hit write nothing shared.
//
// Every thread has its own count per region. hold: count += 1, then look whether the region is open
// and covers the request; if not, count -= 1 and take the slow path. A thread may drop a hold that
// another thread took: then its own count goes below zero and only the sum over all threads means
// something. Closers: gate = 0, fence::heavy(), sum; a sum of 0 proves that no thread holds the region
// and that no thread that looks later can. docs/pin_cache.md ("The hit path") argues why;
// tests/model/hold_protocol_test.cpp explores every interleaving.
#pragma once

#include "firehose/hit/asymmetric_fence.hpp"
#include "firehose/hit/region_slot.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

// Written by its own thread only, read by threads that sum. The counts of all threads for one region add up,
// modulo 2^32, to the number of holds.
using HoldCount = std::atomic<uint32_t>;

#if defined(__x86_64__) && !HYDRANT_TSAN
// A single instruction, so that a hit stays short; not locked: only the owner writes. The clobber keeps the
// compiler from moving the checks above the post.
inline void post_hold(HoldCount& count) noexcept {
  asm volatile("addl $1, %0" : "+m"(count)::"memory");
}
inline void drop_hold(HoldCount& count) noexcept {
  asm volatile("subl $1, %0" : "+m"(count)::"memory");
}
constexpr auto kCheckOrder = std::memory_order_acquire;
#elif HYDRANT_TSAN
inline void post_hold(HoldCount& count) noexcept { count.fetch_add(1, std::memory_order_seq_cst); }
inline void drop_hold(HoldCount& count) noexcept { count.fetch_sub(1, std::memory_order_seq_cst); }
constexpr auto kCheckOrder = std::memory_order_seq_cst;
#else
// relaxed load: only this thread writes the count. Release: uses of the memory before the drop are
// over before a closer reads the count (it reads with acquire).
inline void post_hold(HoldCount& count) noexcept {
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
inline void drop_hold(HoldCount& count) noexcept {
  count.store(count.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}
constexpr auto kCheckOrder = std::memory_order_acquire;
#endif

// Takes a hold on `slot` if this gate of it is open, it contains [first, last] and grants `need`; false:
// nothing held.
inline bool hold_if_open(const RegionSlot& slot, const std::atomic<uintptr_t>& gate,
                         HoldCount& count, uintptr_t first, uintptr_t last,
                         uint32_t need) noexcept {
  post_hold(count);
  if (!asymmetric_fence::asymmetric()) asymmetric_fence::light_symmetric();
  // In this order: bounds and rights of a reused slot are written before its gate.
  if (first >= slot.addr.load(kCheckOrder) && last < gate.load(kCheckOrder) &&
      (need & slot.denied.load(kCheckOrder)) == 0) {
    return true;
  }
  drop_hold(count);
  return false;
}
inline bool hold_if_open(const RegionSlot& slot, HoldCount& count, uintptr_t first, uintptr_t last,
                         uint32_t need) noexcept {
  return hold_if_open(slot, slot.gate, count, first, last, need);
}

}  // namespace hydrant
