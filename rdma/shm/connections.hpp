// Which other ranks of the node are connected.
//
// Threads: any.
#pragma once

#include "rdma/shm/memory/node_layout.hpp"

#include <atomic>
#include <bit>
#include <cstdint>

namespace hydrant::shm {

class Connections {
 public:
  static constexpr uint32_t kWords = kMaxNodeRanks / 64;

  void connect(uint32_t index) noexcept {
    living_[index / 64].fetch_or(bit(index), std::memory_order_relaxed);
  }
  // False: it was not connected.
  bool disconnect(uint32_t index) noexcept {
    return (living_[index / 64].fetch_and(~bit(index), std::memory_order_acq_rel) & bit(index)) !=
           0;
  }
  bool is_connected(uint32_t index) const noexcept {
    return (living_[index / 64].load(std::memory_order_relaxed) & bit(index)) != 0;
  }
  // A bit for each of 64 ranks.
  uint64_t word(uint32_t word) const noexcept {
    return living_[word].load(std::memory_order_acquire);
  }

  // In the single-threaded mode the sending thread reclaims the rings and cells of a disconnected rank.
  void leave_to_sender(uint32_t index) noexcept {
    left_[index / 64].fetch_or(bit(index), std::memory_order_relaxed);
    any_left_.store(true, std::memory_order_release);
  }
  // Calls visit(index) for each rank that was left to the sender since the last call. True: there was one.
  template <typename Visit>
  bool take_left(Visit visit) noexcept {
    if (!any_left_.load(std::memory_order_relaxed)) return false;
    any_left_.exchange(false, std::memory_order_acquire);
    for (uint32_t word = 0; word < kWords; ++word) {
      uint64_t bits = left_[word].exchange(0, std::memory_order_relaxed);
      for (; bits != 0; bits &= bits - 1) {
        visit(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      }
    }
    return true;
  }

 private:
  static constexpr uint64_t bit(uint32_t index) noexcept { return uint64_t{1} << (index % 64); }

  std::atomic<uint64_t> living_[kWords] = {};
  std::atomic<uint64_t> left_[kWords] = {};
  std::atomic<bool> any_left_{false};
};

}  // namespace hydrant::shm
