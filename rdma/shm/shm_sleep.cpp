// Takes idle rings out of the poll, brings them back when a doorbell rings, and puts threads to sleep.
//
// Going idle races with a sender that stores its message and then looks at the attention word. The reader
// sets the word, and then makes every processor pass a barrier. If it cannot, its senders use locked
// instructions on the word. It then looks at the ring once more: either it sees the message or the sender
// sees the word.
#include "firehose/base/machine/membarrier.hpp"
#include "rdma/shm/global_membarrier.hpp"
#include "rdma/shm/shm_transport.hpp"

#include <bit>
#include <sched.h>

namespace hydrant {
namespace {

// A sleep that nobody may end, because a ring was held by another thread or the kernel took the barrier
// away, is no longer than this.
constexpr uint64_t kBlindSleepNs = 1'000'000;

// All transports of the process; a thread that has seen fewer wakes than there were does not sleep.
std::atomic<uint64_t> g_wakes{0};
thread_local uint64_t t_wakes_seen = 0;

template <typename Visit>
void for_each_bit(uint64_t bits, uint32_t word, Visit visit) noexcept {
  for (; bits != 0; bits &= bits - 1) {
    visit(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
  }
}

constexpr Lane kLanes[] = {Lane::kRequest, Lane::kReply};

}  // namespace

// ---- doorbells ----

void ShmTransport::handle_doorbells(uint32_t word, Lane lane) noexcept {
  reclaim_waiting();
  auto& doorbell = self_.doorbells[word].of_lane[static_cast<uint32_t>(lane)];
  const uint64_t rung = doorbell.exchange(0, std::memory_order_acq_rel);
  const uint64_t bits = rung & living_[word].load(std::memory_order_acquire);
  for_each_bit(bits, word, [&](uint32_t from) noexcept {
    counts_.handled_doorbells.fetch_add(1, std::memory_order_relaxed);
    if (open_in(from, lane)) activate(from, lane);
  });
}

// The sender has reserved its ring; one that has not would have us touch a hole.
bool ShmTransport::open_in(uint32_t from, Lane lane) noexcept {
  shm::InRing& ring = in(from, lane);
  if (ring.is_open()) return true;
  if (memory_.touch_ring(from, memory_.node_rank(), lane) != Status::kOk) {
    disconnect_corrupt(from, "the doorbell of a ring without memory, ring",
                       static_cast<uint32_t>(lane));
    return false;
  }
  ring.open(memory_.lines(from, memory_.node_rank(), lane),
            memory_.control(from, memory_.node_rank(), lane), lane);
  return true;
}

void ShmTransport::activate(uint32_t from, Lane lane) noexcept {
  // Pairs with the acquire in poll_lane(): the ring is open before it is visited.
  active_[static_cast<uint32_t>(lane)][from / 64].fetch_or(uint64_t{1} << (from % 64),
                                                           std::memory_order_acq_rel);
}

bool ShmTransport::any_doorbell() const noexcept {
  for (uint32_t word = 0; word < words_; ++word) {
    for (const auto& doorbell : self_.doorbells[word].of_lane) {
      if (doorbell.load(std::memory_order_seq_cst) != 0) return true;
    }
  }
  return false;
}

// ---- retiring rings ----

bool ShmTransport::fence() noexcept {
  if (!has_fence_) return true;  // our senders confirm
  counts_.fences.fetch_add(1, std::memory_order_relaxed);
  if (shm::GlobalMembarrier::issue()) return true;
  fence_lost_.store(true, std::memory_order_relaxed);
  return false;
}

// Makes those of `rings` idle that nobody holds. False: something has come meanwhile, and the rings in
// question are active again. `announced`, if not null, gets what sleep_on() needs. *all_held is false if a
// ring was left alone because it was held.
bool ShmTransport::retire(const RingSet& rings, uint32_t* announced, bool* all_held) noexcept {
  RingSet retired;
  bool any = false;
  *all_held = true;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      for_each_bit(rings.of_lane[index][word], word, [&](uint32_t from) noexcept {
        shm::InRing& ring = in(from, lane);
        if (!ring.enter(threaded_)) {
          *all_held = false;
          return;
        }
        const uint64_t bit = uint64_t{1} << (from % 64);
        retired.of_lane[index][word] |= bit;
        any = true;
        // In this order: a doorbell that rings from now on sets the bit again.
        active_[index][word].fetch_and(~bit, std::memory_order_acq_rel);
        ring.poll_state().exchange(shm::kIdle, std::memory_order_acq_rel);
      });
    }
  }
  if (announced != nullptr) *announced = shm::announce_sleep(self_);
  if (!any) {
    // Doorbells are read with an order of their own; what a peer has stored before wake_peer() is not.
    if (announced != nullptr) (void)fence();
    return true;
  }
  return come_back(retired, !fence());
}

// Looks at retired rings for the last time, and lets go of them. What has messages (or all) is active
// again; true if nothing is.
bool ShmTransport::come_back(RingSet& retired, bool all) noexcept {
  bool quiet = true;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      for_each_bit(retired.of_lane[index][word], word, [&](uint32_t from) noexcept {
        shm::InRing& ring = in(from, lane);
        const bool back = (all || ring.peek() != 0) && !ring.lost.load(std::memory_order_relaxed);
        if (back) {
          // If a sender was first, its doorbell has rung or will; to be active already does no harm.
          ring.poll_state().exchange(shm::kPolled, std::memory_order_acq_rel);
          activate(from, lane);
          quiet = false;
        } else {
          counts_.rings_retired.fetch_add(1, std::memory_order_relaxed);
        }
        ring.leave(threaded_);
      });
    }
  }
  // Others that sleep rely on every active ring being rung for: this one was not.
  if (!quiet) shm::wake_sleepers(self_);
  return quiet;
}

// Retires what was not used since the last review, if there is enough to look at.
void ShmTransport::review() noexcept {
  if (active_rings() <= kAlwaysPolled || fence_lost_.load(std::memory_order_relaxed)) return;
  RingSet unused;
  bool any = false;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      const uint64_t bits = active_[index][word].load(std::memory_order_acquire);
      for_each_bit(bits, word, [&](uint32_t from) noexcept {
        shm::InRing& ring = in(from, lane);
        const uint32_t position = ring.position();
        const uint32_t seen = ring.seen.exchange(position, std::memory_order_relaxed);
        if (seen != position || ring.peek() != 0) return;
        unused.of_lane[index][word] |= uint64_t{1} << (from % 64);
        any = true;
      });
    }
  }
  bool all_held = false;
  if (any) (void)retire(unused, nullptr, &all_held);
}

// ---- sleep ----

void ShmTransport::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  const uint64_t wakes = g_wakes.load(std::memory_order_seq_cst);
  if (wakes != t_wakes_seen) {
    t_wakes_seen = wakes;
    return;
  }
  if (any_doorbell()) return;
  RingSet rings;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      rings.of_lane[index][word] = active_[index][word].load(std::memory_order_acquire);
    }
  }
  uint32_t announced = 0;
  bool all_held = true;
  if (fence_lost_.load(std::memory_order_relaxed)) {
    announced = shm::announce_sleep(self_);
    all_held = false;
  } else if (!retire(rings, &announced, &all_held)) {
    return;
  }
  // Those who come from now on see the announcement; who came before is seen here.
  if (any_doorbell() || g_wakes.load(std::memory_order_seq_cst) != wakes) return;
  if (check.holds != nullptr && check.holds(check.context)) return;
  const bool blind = fence_lost_.load(std::memory_order_relaxed) || (threaded_ && !all_held);
  const uint64_t now = now_ns();
  if (now >= deadline_ns) return;
  counts_.sleeps.fetch_add(1, std::memory_order_relaxed);
  const uint64_t most = now + kBlindSleepNs;
  self_.processor.store(0, std::memory_order_relaxed);
  shm::sleep_on(self_, announced, blind && most < deadline_ns ? most : deadline_ns);
  publish_processor();
}

// ---- who runs where ----

void ShmTransport::publish_processor() noexcept {
  self_.processor.store(static_cast<uint32_t>(sched_getcpu()) + 1, std::memory_order_relaxed);
}

void ShmTransport::yield() noexcept {
  self_.processor.store(0, std::memory_order_relaxed);
  sched_yield();
  publish_processor();
}

bool ShmTransport::is_reply_imminent() const noexcept {
  const shm::RankArea& partner = memory_.area(partner_.load(std::memory_order_relaxed));
  const uint32_t there = partner.processor.load(std::memory_order_relaxed);
  return there != 0 && there != self_.processor.load(std::memory_order_relaxed);
}

void ShmTransport::wake_peer(Rank peer) noexcept {
  const uint32_t index = node_index(peer);
  if (index >= ranks_) return;
  shm::RankArea& area = memory_.area(index);
  // A sleeper that can ask makes every processor pass a barrier between its announcement and its last look.
  // One that cannot relies on us.
  if (!has_fence_ || area.senders_confirm.load(std::memory_order_relaxed) != 0) full_fence();
  shm::wake_sleepers(area);
}

void ShmTransport::wake() noexcept {
  g_wakes.fetch_add(1, std::memory_order_seq_cst);
  shm::wake_sleepers(self_);
}

}  // namespace hydrant
