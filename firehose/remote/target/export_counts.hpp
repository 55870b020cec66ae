// How many exports there are, and how many of them keep released memory.
//
// Threads: changes under the caller's lock. Reads without it are approximate, and exact for the thread that
// has just caused a change; bytes() and zombie_bytes() need the lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace hydrant {

class ExportCounts {
 public:
  // seq_cst, with InvalidationLog::count(): of a thread that releases memory and then looks for exports, and
  // a thread that exports and then looks for releases, at least one sees the other. The former also reads
  // checked().
  uint32_t count() const noexcept { return count_.load(std::memory_order_seq_cst); }
  // Exports of memory whose release only the kernel reports.
  uint32_t checked() const noexcept { return checked_.load(std::memory_order_seq_cst); }
  // Acquire, as in count(); pairs with the release in end_zombie() by the thread that ended the last zombie.
  // A thread that has read invalidations_seen_ of RemoteTarget sees the zombies that find_zombies() made
  // before.
  uint32_t zombies() const noexcept { return zombies_.load(std::memory_order_acquire); }
  uint64_t zombie_bytes() const noexcept { return zombie_bytes_; }
  // The charges of all exports.
  uint64_t bytes() const noexcept { return bytes_; }

  void add(uint64_t charge, bool is_checked) noexcept {
    bytes_ += charge;
    count_.fetch_add(1, std::memory_order_seq_cst);  // with InvalidationLog::count()
    if (is_checked) checked_.fetch_add(1, std::memory_order_seq_cst);
  }
  void add_zombie(uint64_t bytes) noexcept {
    zombies_.fetch_add(1, std::memory_order_relaxed);  // invalidations_seen_ publishes it
    zombie_bytes_ += bytes;
  }
  // Release order: a thread that reads the last of these in quiet(), without the lock, then uses the memory
  // that the peer wrote to before this return. (Additions in between belong to the same release sequence.)
  void end_zombie(uint64_t bytes) noexcept {
    zombies_.fetch_sub(1, std::memory_order_release);
    zombie_bytes_ -= bytes;
  }
  void end(uint64_t charge, bool is_checked) noexcept {
    // Relaxed: a thread that misses the change makes one needless query of the kernel.
    if (is_checked) checked_.fetch_sub(1, std::memory_order_relaxed);
    count_.fetch_sub(1, std::memory_order_release);
    bytes_ -= charge;
  }

 private:
  std::atomic<uint32_t> count_{0}, checked_{0}, zombies_{0};
  uint64_t bytes_ = 0, zombie_bytes_ = 0;
};

}  // namespace hydrant
