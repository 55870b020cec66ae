// Puts threads to sleep on the futex of the rank's area, and wakes those of other ranks.
#include "rdma/shm/node_sleeping.hpp"

#include "firehose/base/machine/membarrier.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/shm/doorbell.hpp"

#include <algorithm>
#include <sched.h>

namespace hydrant::shm {
namespace {

// The longest sleep if a message may come without a wake-up: another thread held a ring, or the kernel began
// to refuse the membarrier.
constexpr uint64_t kBlindSleepNs = 1'000'000;

// Counts wake() calls for all transports of the process. A thread that has seen fewer does not sleep.
std::atomic<uint64_t> g_wakes{0};
thread_local uint64_t t_wakes_seen = 0;

}  // namespace

bool NodeSleeping::announce_sleep(Announcement* announcement) noexcept {
  const uint64_t wakes = g_wakes.load(std::memory_order_seq_cst);
  if (wakes != t_wakes_seen) {
    t_wakes_seen = wakes;
    return false;
  }
  uint32_t announced = 0;
  bool may_miss_wakeup = false;
  if (!rings_.prepare_sleep(&announced, &may_miss_wakeup)) return false;
  // wake() from now on sees the announcement; an earlier one is seen here.
  if (g_wakes.load(std::memory_order_seq_cst) != wakes) return false;
  *announcement = {.deadline_ns = may_miss_wakeup ? now_ns() + kBlindSleepNs : UINT64_MAX,
                   .word = announced};
  return true;
}

void NodeSleeping::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  Announcement announcement;
  if (!announce_sleep(&announcement)) return;
  if (check.holds != nullptr && check.holds(check.context)) return;
  self_.processor.store(0, std::memory_order_relaxed);
  (void)sleep_announced(announcement, deadline_ns);
  publish_processor();
}

// The word has another value if this process was woken since the announcement.
bool NodeSleeping::sleep_announced(const Announcement& announcement,
                                   uint64_t deadline_ns) noexcept {
  const uint64_t until = std::min(deadline_ns, announcement.deadline_ns);
  if (now_ns() < until) {
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    sleep_on(self_, announcement.word, until);
  }
  return self_.sleep.load(std::memory_order_seq_cst) != announcement.word;
}

// ---- the processor that a rank runs on ----

void NodeSleeping::publish_processor() noexcept {
  self_.processor.store(static_cast<uint32_t>(sched_getcpu()) + 1, std::memory_order_relaxed);
}

void NodeSleeping::yield() noexcept {
  self_.processor.store(0, std::memory_order_relaxed);
  sched_yield();
  publish_processor();
}

bool NodeSleeping::is_reply_imminent() const noexcept {
  const RankArea& partner = memory_.area(rings_.partner());
  const uint32_t partner_processor = partner.processor.load(std::memory_order_relaxed);
  return partner_processor != 0 &&
         partner_processor != self_.processor.load(std::memory_order_relaxed);
}

void NodeSleeping::wake_peer(Rank peer) noexcept {
  const uint32_t index = index_.of(peer);
  if (index >= index_.size) return;
  RankArea& area = memory_.area(index);
  // A sleeper with membarrier issues it between its announcement and its last check. A sleeper without it
  // relies on the full fence of this thread.
  if (!has_fence_ || area.senders_confirm.load(std::memory_order_relaxed) != 0) full_fence();
  wake_sleepers(area);
}

void NodeSleeping::wake() noexcept {
  g_wakes.fetch_add(1, std::memory_order_seq_cst);
  wake_sleepers(self_);
}

}  // namespace hydrant::shm
