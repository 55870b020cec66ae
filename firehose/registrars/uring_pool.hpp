// The rings of one uring registrar: chooses one for a pin, opens more when it is worth it.
// Behind uring_registrar.hpp, which tells why there are many.
//
// Threads: any, except construction, destruction and forget_in_child(). Rings are only ever added, so
// a ring that was answered stays valid for the life of the pool.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/registrars/uring_registrar.hpp"
#include "firehose/registrars/uring_ring.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

namespace hydrant {

inline constexpr uint32_t kUringMaxRings = 64;

class UringPool {
 public:
  explicit UringPool(const UringOptions& options) noexcept;
  // Closes all rings. Requires: nobody inside a call.
  ~UringPool();
  UringPool(const UringPool&) = delete;
  UringPool& operator=(const UringPool&) = delete;

  // No more rings than this, if it is less than the options say. Before adopt_first().
  void limit_rings(uint32_t most) noexcept { max_rings_ = std::min(max_rings_, most); }
  uint32_t max_rings() const noexcept { return max_rings_; }

  // Takes the first ring over, which the probe has opened.
  void adopt_first(std::unique_ptr<UringRing> ring) noexcept;

  // A ring with room for a registration of `len` bytes, claimed by the caller, and its index; none of those
  // whose bit is set in `avoid`. Null with *error = minus an errno if every ring is full and no other can
  // be opened (-EXFULL: by our own limit).
  UringRing* claim(size_t len, uint64_t avoid, uint32_t* index, int* error) noexcept;

  // Null if there is none with that index.
  UringRing* at(uint32_t index) const noexcept;
  uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  uint32_t slots_of_ring(uint32_t index) const noexcept;
  uint64_t max_slots() const noexcept;
  // Most pieces of 1 GiB in one registration.
  uint32_t max_run() const noexcept { return std::min(slots_of_ring(0), UringSlots::kMaxRun); }

  // The child of a fork: closes the parent's descriptors and starts empty. The parent's ring objects
  // are leaked: their locks may have been held. Async-signal-safe.
  void forget_in_child() noexcept;

 private:
  struct Choice {
    UringRing* ring = nullptr;
    uint32_t index = 0;
    bool empty = false;
    uint64_t score = UINT64_MAX;
  };
  Choice find(size_t len, uint64_t avoid) noexcept;
  uint64_t score(const UringLoad& load, uint32_t index, size_t len) const noexcept;
  bool worth_growing(const Choice& choice) const noexcept;
  int grow(uint32_t size_seen) noexcept;
  bool is_large(size_t len) const noexcept { return len >= options_.large_bytes; }

  const UringOptions options_;
  const uint32_t processors_;
  uint32_t max_rings_;
  bool tagged_ = false;  // of the first ring and so of all; set before anybody else knows the pool
  // Entries below size_ never change (but in forget_in_child()); the release store of size_ publishes
  // them, and size() pairs with it.
  std::array<UringRing*, kUringMaxRings> rings_ = {};
  // Whether a ring is one for large pins: settled by whoever claims it while it is empty. Relaxed, a hint.
  std::array<std::atomic<bool>, kUringMaxRings> large_ = {};
  std::atomic<uint32_t> size_{0};
  Mutex grow_mu_;  // opening one ring at a time
  // Relaxed hint: somebody is opening a ring; others make do with what there is if they can.
  std::atomic<bool> growing_{false};
  // After a failure, rings are opened only when there is no other choice, until this time (relaxed, a hint).
  std::atomic<uint64_t> no_luxury_until_ns_{0};
};

}  // namespace hydrant
