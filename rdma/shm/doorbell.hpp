// How a rank that looks at few rings, or at none, hears of the others: a bit per ring in its area, and a
// futex when its threads sleep. Rung by a sender that finds a ring's attention word idle.
#pragma once

#include "rdma/shm/memory/node_layout.hpp"

#include <cstdint>

namespace hydrant::shm {

// Sets the doorbell of `from` in `lane` and wakes the rank's threads if they sleep.
void set_doorbell(RankArea& area, uint32_t from, Lane lane) noexcept;

// The sleep word counts wake-ups above its lowest bit, so that no sleeper can miss one: it sleeps only as
// long as the word is what it was when it announced itself.

// Announces that the calling thread will sleep: whoever rings a doorbell from now on wakes it. Sequentially
// consistent: a doorbell not seen after it belongs to somebody who sees the announcement.
inline uint32_t announce_sleep(RankArea& area) noexcept {
  return area.sleep.fetch_or(1, std::memory_order_seq_cst) | 1;
}
// Sleeps unless somebody woke the rank since `announced`. Deadline in now_ns(). May return early.
void sleep_on(RankArea& area, uint32_t announced, uint64_t deadline_ns) noexcept;
// Wakes all who announced themselves. Async-signal-safe; one load if there is nobody.
void wake_sleepers(RankArea& area) noexcept;

}  // namespace hydrant::shm
