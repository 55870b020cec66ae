// The times between the monitor's query of a mapping and its registration, for the threads that map tables
// meanwhile: if another thread unmapped a part of the mapping, a new table may lie in that part, and would be
// registered with the mapping. Windows follow one another.
//
// Threads: one opens and closes windows at a time; any number may query. Async-signal-safe, without waiting.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class WatchWindows {
 public:
  enum class Answer { kApart, kMayBeWatched, kNotKnownYet };

  // Increases when a window opens and when it closes: odd while one is open.
  uint64_t now() const noexcept { return sequence_.load(std::memory_order_seq_cst); }
  // Whether memory that was mapped between since = now() and this call may lie in a registered range.
  Answer ask(uint64_t since, MemoryRange mapped) const noexcept {
    const uint64_t windows = (now() + 1) / 2;
    uint64_t window = since / 2;
    if (windows - window > kKept) return Answer::kMayBeWatched;
    Answer answer = Answer::kApart;
    for (; window < windows; ++window) {
      const Registration& at = registrations_[window % kKept];
      const uintptr_t first = at.first.load(std::memory_order_relaxed);
      const uintptr_t last = at.last.load(std::memory_order_acquire);
      if (first > last) answer = Answer::kNotKnownYet;
      if (first <= mapped.last() && mapped.addr <= last) return Answer::kMayBeWatched;
    }
    // A window that opened since then may have overwritten the entry of an earlier one that was read.
    return (now() + 1) / 2 - since / 2 > kKept ? Answer::kMayBeWatched : answer;
  }

  void open() noexcept {
    Registration& at = current();
    at.last.store(0, std::memory_order_relaxed);
    at.first.store(UINTPTR_MAX, std::memory_order_relaxed);
    sequence_.fetch_add(1, std::memory_order_seq_cst);
  }
  // The range that will be registered before the window closes.
  void announce(MemoryRange range) noexcept {
    Registration& at = current();
    at.first.store(range.addr, std::memory_order_relaxed);
    at.last.store(range.last(), std::memory_order_release);
  }
  void close() noexcept {
    Registration& at = current();
    const bool announced = at.last.load(std::memory_order_relaxed) != 0;
    if (!announced) at.first.store(0, std::memory_order_release);  // [0, 0], which is never mapped
    sequence_.fetch_add(1, std::memory_order_seq_cst);
  }
  // In the child of a fork, whose parent may have had a window open.
  void reset_in_child() noexcept {
    if (now() % 2 != 0) close();
  }

 private:
  static constexpr size_t kKept = 64;
  // first > last: no range is announced.
  struct Registration {
    std::atomic<uintptr_t> first{UINTPTR_MAX}, last{0};
  };
  Registration& current() noexcept { return registrations_[now() / 2 % kKept]; }

  std::atomic<uint64_t> sequence_{0};
  std::array<Registration, kKept> registrations_{};
};

// The windows of the process, which has one monitor.
inline WatchWindows g_watch_windows;

}  // namespace hydrant
