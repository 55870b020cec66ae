// Retires idle rings from the poll, and reactivates them when a doorbell rings.
//
// Going idle races with a sender that stores its message and then reads poll_state. The reader sets
// poll_state to idle, and then issues a membarrier; without membarrier, senders access poll_state by locked
// instructions. The reader then checks the ring once more: either it sees the message, or the sender sees the
// idle state.
#include "firehose/base/machine/membarrier.hpp"
#include "rdma/shm/memory/global_membarrier.hpp"
#include "rdma/shm/node_rings.hpp"

#include <bit>

namespace hydrant::shm {
namespace {

template <typename Visit>
void for_each_bit(uint64_t bits, uint32_t word, Visit visit) noexcept {
  for (; bits != 0; bits &= bits - 1) {
    visit(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
  }
}

constexpr Lane kLanes[] = {Lane::kRequest, Lane::kReply};

}  // namespace

// ---- doorbells ----

void NodeRings::handle_doorbells(uint32_t word, Lane lane) noexcept {
  reclaim_waiting();
  auto& doorbell = self_.doorbells[word].of_lane[static_cast<uint32_t>(lane)];
  const uint64_t rung = doorbell.exchange(0, std::memory_order_acq_rel);
  const uint64_t bits = rung & connections_.word(word);
  for_each_bit(bits, word, [&](uint32_t from) noexcept {
    counts_.handled_doorbells.fetch_add(1, std::memory_order_relaxed);
    if (open_in(from, lane)) activate(from, lane);
  });
}

// The sender has to have reserved the ring: otherwise it would be a hole in the file, and access could raise
// SIGBUS.
bool NodeRings::open_in(uint32_t from, Lane lane) noexcept {
  InRing& ring = in(from, lane);
  if (ring.is_open()) return true;
  {
    // Once per ring: the doorbell may ring again, for another thread, while this one opens the ring.
    const MutexLock opening(opening_mu_);
    if (ring.is_open()) return true;
    if (memory_.reserve_ring(from, memory_.node_rank(), lane, shm::NodeMemory::Owner::kTheirs) ==
        Status::kOk) {
      ring.open(memory_.lines(from, memory_.node_rank(), lane),
                memory_.control(from, memory_.node_rank(), lane), lane);
      return true;
    }
  }
  disconnect_corrupt(from, "the doorbell of a ring without memory, ring",
                     static_cast<uint32_t>(lane));
  return false;
}

void NodeRings::activate(uint32_t from, Lane lane) noexcept {
  // Pairs with the acquire in poll_lane(): the ring is opened before it is visited.
  active_[static_cast<uint32_t>(lane)][from / 64].fetch_or(uint64_t{1} << (from % 64),
                                                           std::memory_order_acq_rel);
}

bool NodeRings::any_doorbell() const noexcept {
  for (uint32_t word = 0; word < words_; ++word) {
    for (const auto& doorbell : self_.doorbells[word].of_lane) {
      if (doorbell.load(std::memory_order_seq_cst) != 0) return true;
    }
  }
  return false;
}

// ---- retiring rings ----

bool NodeRings::fence() noexcept {
  if (!has_fence_) return true;  // senders to this rank use locked instructions
  counts_.fences.fetch_add(1, std::memory_order_relaxed);
  if (GlobalMembarrier::issue()) return true;
  fence_lost_.store(true, std::memory_order_relaxed);
  return false;
}

// Makes the rings of `rings` idle unless another thread holds them. False: messages have arrived meanwhile,
// and their rings are active again. `announced`, if not null, receives the value for sleep_on(). *all_held is
// false if a ring was skipped because another thread held it.
bool NodeRings::retire(const RingSet& rings, uint32_t* announced, bool* all_held) noexcept {
  RingSet retired;
  bool any = false;
  *all_held = true;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      for_each_bit(rings.of_lane[index][word], word, [&](uint32_t from) noexcept {
        InRing& ring = in(from, lane);
        if (!ring.enter(threaded_)) {
          *all_held = false;
          return;
        }
        const uint64_t bit = uint64_t{1} << (from % 64);
        retired.of_lane[index][word] |= bit;
        any = true;
        // This order matters: a doorbell that rings from now on sets the bit again.
        active_[index][word].fetch_and(~bit, std::memory_order_acq_rel);
        ring.poll_state().exchange(kIdle, std::memory_order_acq_rel);
      });
    }
  }
  if (announced != nullptr) *announced = announce_sleep(self_);
  if (!any) {
    // The fence orders this thread's next reads after stores that a peer made before wake_peer(). Doorbells
    // need no fence, because they are read in sequentially consistent order.
    if (announced != nullptr) (void)fence();
    return true;
  }
  return reactivate(retired, !fence());
}

// Checks the retired rings a last time, and leaves them. Rings with messages (all rings if `all`) become
// active again; true if none does.
bool NodeRings::reactivate(RingSet& retired, bool all) noexcept {
  bool all_idle = true;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      for_each_bit(retired.of_lane[index][word], word, [&](uint32_t from) noexcept {
        InRing& ring = in(from, lane);
        const bool back = (all || ring.peek() != 0) && !ring.lost.load(std::memory_order_relaxed);
        if (back) {
          // The doorbell of a sender that was first has rung or will ring; a second activation does no harm.
          ring.poll_state().exchange(kPolled, std::memory_order_acq_rel);
          activate(from, lane);
          all_idle = false;
        } else {
          counts_.rings_retired.fetch_add(1, std::memory_order_relaxed);
        }
        ring.leave(threaded_);
      });
    }
  }
  // Sleeping threads rely on a doorbell for every ring; this ring became active without one.
  if (!all_idle) wake_sleepers(self_);
  return all_idle;
}

// Retires rings without messages since the last review, if more than kAlwaysPolled are active.
void NodeRings::review() noexcept {
  if (active_rings() <= kAlwaysPolled || fence_lost_.load(std::memory_order_relaxed)) return;
  RingSet unused;
  bool any = false;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      const uint64_t bits = active_[index][word].load(std::memory_order_acquire);
      for_each_bit(bits, word, [&](uint32_t from) noexcept {
        InRing& ring = in(from, lane);
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

bool NodeRings::prepare_sleep(uint32_t* announced, bool* may_miss_wakeup) noexcept {
  if (any_doorbell()) return false;
  RingSet rings;
  for (const Lane lane : kLanes) {
    const auto index = static_cast<uint32_t>(lane);
    for (uint32_t word = 0; word < words_; ++word) {
      rings.of_lane[index][word] = active_[index][word].load(std::memory_order_acquire);
    }
  }
  bool all_held = true;
  if (fence_lost_.load(std::memory_order_relaxed)) {
    *announced = announce_sleep(self_);
    all_held = false;
  } else if (!retire(rings, announced, &all_held)) {
    return false;
  }
  // A sender from now on sees the announcement; an earlier one is seen here.
  if (any_doorbell()) return false;
  *may_miss_wakeup = fence_lost_.load(std::memory_order_relaxed) || (threaded_ && !all_held);
  return true;
}

}  // namespace hydrant::shm
