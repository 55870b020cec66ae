// Rings a rank's doorbell, and puts its threads to sleep on a futex of the shared memory. Tour "an Active
// Message", step 5: commit() rings it if the reader is idle; shm_sleep.cpp sleeps.
#include "rdma/shm/doorbell.hpp"

#include <cerrno>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

// Not FUTEX_PRIVATE_FLAG: processes share the word.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* deadline) noexcept {
  return syscall(SYS_futex, &word, operation, value, deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

void set_doorbell(RankArea& area, uint32_t from, Lane lane) noexcept {
  // Pairs with announce_sleep() and the check of the doorbells after it. Both sides are seq_cst, so that one
  // of the two sees the other.
  area.doorbells[from / 64].of_lane[static_cast<uint32_t>(lane)].fetch_or(
      uint64_t{1} << (from % 64), std::memory_order_seq_cst);
  wake_sleepers(area);
}

void sleep_on(RankArea& area, uint32_t announced, uint64_t deadline_ns) noexcept {
  timespec deadline{};
  deadline.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000u);
  deadline.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000u);
  futex(area.sleep, FUTEX_WAIT_BITSET, announced, &deadline);
}

void wake_sleepers(RankArea& area) noexcept {
  uint32_t word = area.sleep.load(std::memory_order_seq_cst);
  while ((word & 1) != 0) {
    // The carry clears the lowest bit and increments the count.
    if (!area.sleep.compare_exchange_weak(word, word + 1, std::memory_order_seq_cst)) continue;
    const int saved_errno = errno;
    futex(area.sleep, FUTEX_WAKE, INT_MAX, nullptr);
    errno = saved_errno;
    return;
  }
}

}  // namespace hydrant::shm
