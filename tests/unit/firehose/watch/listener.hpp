// A client of the monitor that records its notifications.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"
#include "tests/support/mapped_memory.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace hydrant::testing {

inline const hydrant_monitor_t& the_monitor() { return *hydrant_monitor(HYDRANT_MONITOR_VERSION); }

inline uint32_t cover(const MappedMemory& memory, size_t page, size_t n, uint32_t flags = 0) {
  return the_monitor().cover(memory.addr(page), n * kPage, flags);
}

// Reads a number that the monitor publishes and its reader writes.
inline uint64_t shown(const uint64_t* number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }

class Listener {
 public:
  Listener() { number_ = the_monitor().subscribe(&client_); }
  ~Listener() { leave(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void leave() {
    if (number_ >= 0) the_monitor().unsubscribe(number_);
    number_ = -1;
  }
  int number() const { return number_; }
  // Requests separate reports of unmapped memory from now on. 0, or the monitor's error.
  int listen_to_unmapped() const {
    return the_monitor().set_unmapped(number_, [](void* self, uintptr_t addr, size_t len) {
      of(self).forget({addr, len}, true);
    });
  }

  // Whether an invalidation touched some of this range since the beginning, or since the last clear().
  bool told_of(uintptr_t addr, size_t len) const {
    const size_t n = count();
    for (size_t i = 0; i < n; ++i) {
      if (told_[i].overlaps({addr, len})) return true;
    }
    return false;
  }
  bool told_of(const MappedMemory& memory, size_t page, size_t n) const {
    return told_of(memory.addr(page), n * kPage);
  }
  // The same for reports of unmapped memory.
  bool told_of_unmapped(uintptr_t addr, size_t len) const {
    const size_t n = count();
    for (size_t i = 0; i < n; ++i) {
      if (unmapped_[i] && told_[i].overlaps({addr, len})) return true;
    }
    return false;
  }
  bool told_of_unmapped(const MappedMemory& memory, size_t page, size_t n) const {
    return told_of_unmapped(memory.addr(page), n * kPage);
  }
  size_t count() const { return count_.load(std::memory_order_acquire) % kMax; }
  MemoryRange told(size_t i) const { return told_[i]; }
  void clear() { count_.store(0, std::memory_order_release); }
  size_t vouched() const { return vouched_; }
  void say_pinned(int answer) { pinned_ = answer; }
  // forget() waits while this is set.
  void hold_back(bool on) { held_back_ = on; }
  bool inside() const { return inside_; }

 private:
  static constexpr size_t kMax = 4096;
  static Listener& of(void* self) { return *static_cast<Listener*>(self); }

  void forget(MemoryRange range, bool unmapped) {
    inside_ = true;
    (void)wait_until([this] { return !held_back_; });
    const std::lock_guard lock(mutex_);  // several threads may notify at a time
    const size_t n = count_.load(std::memory_order_relaxed);
    told_[n % kMax] = range;
    unmapped_[n % kMax] = unmapped;
    count_.store(n + 1, std::memory_order_release);
    inside_ = false;
  }

  hydrant_monitor_client_t client_{
      this,
      [](void* self, uintptr_t addr, size_t len) {
        of(self).forget({addr, len}, false);
      },
      [](void* self) { ++of(self).vouched_; },
      [](void* self, uintptr_t, size_t) { return of(self).pinned_.load(); }};
  int number_ = -1;
  std::mutex mutex_;
  std::array<MemoryRange, kMax> told_{};
  std::array<bool, kMax> unmapped_{};
  std::atomic<size_t> count_{0}, vouched_{0};
  std::atomic<int> pinned_{0};
  std::atomic<bool> held_back_{false}, inside_{false};
};

}  // namespace hydrant::testing
