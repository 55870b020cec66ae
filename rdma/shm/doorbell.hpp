// Notifies a rank that does not poll a ring: one bit per ring in its area, and a futex for sleeping threads.
// A sender rings the doorbell if it finds the ring's poll_state idle.
#pragma once

#include "rdma/shm/memory/node_layout.hpp"

#include <cstdint>

namespace hydrant::shm {

// Sets the doorbell of `from` in `lane` and wakes the rank's threads if they sleep.
void set_doorbell(RankArea& area, uint32_t from, Lane lane) noexcept;

// The sleep word counts wake-ups above its lowest bit, so that no sleeper misses one: a thread sleeps only
// while the word equals the value that it announced.

// Announces that the calling thread will sleep: every doorbell rung from now on wakes it. Sequentially
// consistent: a sender whose doorbell the following check misses sees the announcement.
inline uint32_t announce_sleep(RankArea& area) noexcept {
  return area.sleep.fetch_or(1, std::memory_order_seq_cst) | 1;
}
// Sleeps unless the rank was woken since `announced`. Deadline in now_ns(). May return early.
void sleep_on(RankArea& area, uint32_t announced, uint64_t deadline_ns) noexcept;
// Wakes all threads that announced a sleep. Async-signal-safe; one load if there are none.
void wake_sleepers(RankArea& area) noexcept;

}  // namespace hydrant::shm
