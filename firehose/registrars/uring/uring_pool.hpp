// The rings of one uring registrar: chooses one for a pin and opens more when worthwhile. Part of
// uring_registrar.hpp, which explains why there are many.
//
// Lost rings (uring_ring.hpp) are not chosen and do not count. Lost rings that have drained are reopened
// before new ones are added.
//
// Threads: any, except for construction, destruction and forget_in_child(). Rings are never removed, so a
// pointer to a ring stays valid for the life of the pool.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

namespace hydrant {

inline constexpr uint32_t kUringMaxRings = 64;

class UringPool {
 public:
  explicit UringPool(const UringOptions& options) noexcept;
  // Closes all rings. Requires: no thread inside a call.
  ~UringPool();
  UringPool(const UringPool&) = delete;
  UringPool& operator=(const UringPool&) = delete;

  // Lowers the limit on rings below that of the options. Call it before adopt_first().
  void limit_rings(uint32_t most) noexcept { max_rings_ = std::min(max_rings_, most); }
  uint32_t max_rings() const noexcept { return max_rings_; }

  // Takes ownership of the first ring, which the probe has opened.
  void adopt_first(std::unique_ptr<UringRing> ring) noexcept;

  // Claims a ring with room for a registration of `len` bytes and returns it and its index. Skips rings whose
  // bit is set in `avoid`. Null with *failure if every ring is full and no further one can be opened
  // (-EXFULL: the pool's own limit).
  UringRing* claim(size_t len, uint64_t avoid, uint32_t* index, UringFailure* failure) noexcept;

  // Null if the index is invalid.
  UringRing* at(uint32_t index) const noexcept;
  uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  // Rings that are not lost.
  uint32_t live() const noexcept { return size() - lost(); }

  // Checks the descriptors of all rings; true if a ring is newly lost. *hidden: one that may be open.
  bool handle_losses(bool* hidden) noexcept;

  uint32_t slots_of_ring(uint32_t index) const noexcept;
  uint64_t max_slots() const noexcept;
  // Most pieces of 1 GiB in one registration.
  uint32_t max_run() const noexcept { return std::min(slots_of_ring(0), UringSlots::kMaxRun); }

  // For the child of a fork: closes the parent's descriptors and starts empty. Leaks the parent's ring
  // objects, because their locks may have been held. Async-signal-safe.
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
  UringFailure grow(uint32_t size_seen) noexcept;
  UringFailure reopen_lost() noexcept HYDRANT_REQUIRES(grow_mu_);
  uint32_t lost() const noexcept;
  bool is_large(size_t len) const noexcept { return len >= options_.large_bytes; }

  const UringOptions options_;
  const uint32_t processors_;
  uint32_t max_rings_;
  bool tagged_ = false;  // of all rings; set before the pool is shared between threads
  // Entries below size_ never change (except in forget_in_child()). The release store of size_ publishes
  // them; pairs with the acquire in size().
  std::array<UringRing*, kUringMaxRings> rings_ = {};
  // Whether a ring is for large pins; set by the thread that claims it while it is empty. Relaxed: a hint.
  std::array<std::atomic<bool>, kUringMaxRings> large_ = {};
  std::atomic<uint32_t> size_{0};
  Mutex grow_mu_;  // serialises the opening of rings
  // A thread is opening a ring; others use the existing rings if possible. Relaxed: a hint.
  std::atomic<bool> growing_{false};
  // After a failure, rings are opened only when unavoidable until this time. Relaxed: a hint.
  std::atomic<uint64_t> no_luxury_until_ns_{0};
};

}  // namespace hydrant
