// Ranges that a domain or a registrar has to forget, noted while another thread held its mutex. The holder
// may be the very thread whose signal handler released the memory, so a wait for the mutex might never end.
//
// The notifier of a domain adds the range here and then shuts the gates of overlapping regions (gate.hpp),
// both without a lock. The next holder of the mutex takes the ranges and forgets them in the tables, before
// it reads any table. docs/pin_cache.md, "Invalidated without the mutex", has the argument;
// tests/model/owed_protocol_test.cpp explores it.
//
// Threads: add() and any() from any thread, also in a signal handler; they never wait. The rest under the
// owner's mutex.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class PendingRanges {
 public:
  static constexpr size_t kMax = 64;

  // Acquire-release: if a holder misses this in added_meanwhile(), this sees all that the holder wrote
  // before.
  void add(MemoryRange range) noexcept {
    if (!keep(range)) overflowed_.store(true, std::memory_order_relaxed);
    added_.fetch_add(1, std::memory_order_acq_rel);
  }
  // Stands for all memory that is cached because the client vouches for it.
  void add_vouched() noexcept {
    vouched_.store(true, std::memory_order_relaxed);
    added_.fetch_add(1, std::memory_order_acq_rel);
  }
  // Adds no range: threads that open a gate later see an addition, and leave the gate shut.
  void add_nothing() noexcept { added_.fetch_add(1, std::memory_order_acq_rel); }

  // False: all ranges that were added before the call are forgotten in the tables, too.
  bool any() const noexcept {
    return added_.load(std::memory_order_acquire) != taken_.load(std::memory_order_acquire);
  }
  // The same for the holder that is about to open a gate. A read-modify-write: an add() that it misses comes
  // later in the order of the counter, and then sees what the holder wrote before.
  bool added_meanwhile() noexcept {
    return added_.fetch_add(0, std::memory_order_acq_rel) != taken_.load(std::memory_order_relaxed);
  }

  // Calls forget(range) for each, forget_vouched(), and forget_all() if there was no room for a range.
  template <class Forget, class ForgetVouched, class ForgetAll>
  void take(const Forget& forget, const ForgetVouched& forget_vouched,
            const ForgetAll& forget_all) noexcept {
    const uint64_t count = added_.load(std::memory_order_acquire);
    for (Entry& entry : entries_) {
      if (entry.state.load(std::memory_order_acquire) != kFull) continue;
      const MemoryRange range{entry.addr.load(std::memory_order_relaxed),
                              entry.len.load(std::memory_order_relaxed)};
      entry.state.store(kFree, std::memory_order_release);
      forget(range);
    }
    if (vouched_.exchange(false, std::memory_order_relaxed)) forget_vouched();
    if (overflowed_.exchange(false, std::memory_order_relaxed)) forget_all();
    // Stored last: when any() is false, the ranges are forgotten.
    taken_.store(count, std::memory_order_release);
  }

  // For the only thread of a forked child.
  void reset_in_child() noexcept {
    for (Entry& entry : entries_) entry.state.store(kFree, std::memory_order_relaxed);
    vouched_.store(false, std::memory_order_relaxed);
    overflowed_.store(false, std::memory_order_relaxed);
    taken_.store(added_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  enum State : uint32_t { kFree, kBeingWritten, kFull };
  struct Entry {
    std::atomic<uint32_t> state{kFree};
    std::atomic<uintptr_t> addr{0};
    std::atomic<size_t> len{0};
  };

  bool keep(MemoryRange range) noexcept {
    for (Entry& entry : entries_) {
      uint32_t expected = kFree;
      if (entry.state.load(std::memory_order_relaxed) != kFree ||
          !entry.state.compare_exchange_strong(expected, kBeingWritten,
                                               std::memory_order_acquire)) {
        continue;
      }
      entry.addr.store(range.addr, std::memory_order_relaxed);
      entry.len.store(range.len, std::memory_order_relaxed);
      entry.state.store(kFull, std::memory_order_release);
      return true;
    }
    return false;
  }

  // On a line of their own: added_ is read by each slow call and written by notifiers only.
  alignas(64) std::atomic<uint64_t> added_{0};
  std::atomic<uint64_t> taken_{0};  // added_ when the last holder took them
  std::atomic<bool> vouched_{false}, overflowed_{false};
  Entry entries_[kMax];
};

}  // namespace hydrant
