// Chooses a ring for each pin of the uring registrar and opens further rings. uring_ring.cpp makes the calls.
#include "firehose/registrars/uring/uring_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Ring i has the slots of the last row with first <= i: 188416 slots in total.
struct RingSize {
  uint32_t first, slots;
};
constexpr RingSize kSizes[] = {{0, 256}, {32, 1024}, {48, 4096}, {56, 16384}};

// Penalties that make up a ring's score, largest first; below them, its registered bytes.
constexpr uint64_t kBusy = uint64_t{1} << 62;
constexpr uint64_t kWrongKind = uint64_t{1} << 61;
constexpr uint64_t kCrowded = uint64_t{1} << 60;

// Threads that find every ring busy open another, up to this many per processor. Beyond that, waiting for the
// kernel's lock costs less.
constexpr uint32_t kRingsPerProcessor = 2;
// Limit on rings that are opened because others are crowded: descriptors are scarce.
constexpr uint32_t kRingsForRoom = 16;

// Time before the next optional ring after a failure: an attempt costs tens of microseconds.
constexpr uint64_t kNoLuxuryNs = 100'000'000;

constexpr UringFailure kPoolIsFull{-EXFULL, ""};

uint32_t online_processors() noexcept {
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<uint32_t>(n) : 1;
}

uint32_t this_processor() noexcept {
  const int cpu = sched_getcpu();
  return cpu > 0 ? static_cast<uint32_t>(cpu) : 0;
}

}  // namespace

UringPool::UringPool(const UringOptions& options) noexcept
    : options_(options), processors_(online_processors()), max_rings_(options.max_rings) {}

UringPool::~UringPool() {
  const uint32_t n = size();
  for (uint32_t i = 0; i < n; ++i) delete rings_[i];
}

void UringPool::adopt_first(std::unique_ptr<UringRing> ring) noexcept {
  tagged_ = ring->tagged();
  rings_[0] = ring.release();
  size_.store(1, std::memory_order_release);
}

uint32_t UringPool::slots_of_ring(uint32_t index) const noexcept {
  if (options_.ring_slots != 0) return options_.ring_slots;
  uint32_t slots = kSizes[0].slots;
  for (const RingSize& size : kSizes) {
    if (index >= size.first) slots = size.slots;
  }
  return slots;
}

uint64_t UringPool::max_slots() const noexcept {
  uint64_t slots = 0;
  for (uint32_t i = 0; i < max_rings_; ++i) slots += slots_of_ring(i);
  return slots;
}

UringRing* UringPool::at(uint32_t index) const noexcept {
  return index < size() ? rings_[index] : nullptr;
}

uint64_t UringPool::score(const UringLoad& load, uint32_t index, size_t len) const noexcept {
  uint64_t score = std::min(load.taken.bytes, kCrowded - 1);
  // An empty ring has no kind and accepts any length.
  if (load.taken.bytes != 0) {
    if (large_[index].load(std::memory_order_relaxed) != is_large(len)) score |= kWrongKind;
    if (load.taken.bytes + len > options_.crowded_bytes) score |= kCrowded;
  }
  if (load.users != 0) score |= kBusy;
  return score;
}

// Returns the first ring with no penalty, or the one with the lowest score. The search starts at an index
// derived from the processor, so that concurrent threads try different rings first.
UringPool::Choice UringPool::find(size_t len, uint64_t avoid) noexcept {
  const uint32_t n = size(), run = UringSize::of(len).slots;
  Choice best;
  uint32_t index = n > 1 ? this_processor() % n : 0;
  for (uint32_t step = 0; step < n; ++step) {
    UringRing* ring = rings_[index];
    const UringLoad load = ring->load();
    if (!ring->is_lost() && run <= load.free_slots && (avoid >> index & 1) == 0) {
      const uint64_t points = score(load, index, len);
      if (points < best.score) best = {ring, index, load.taken.bytes == 0, points};
      if (points < kCrowded) break;
    }
    if (++index == n) index = 0;
  }
  return best;
}

bool UringPool::worth_growing(const Choice& choice) const noexcept {
  if (choice.score < kCrowded) return false;
  const uint32_t n = live();
  if (n >= max_rings_) return false;
  if (choice.ring == nullptr) return true;
  if (growing_.load(std::memory_order_relaxed)) return false;
  if (no_luxury_until_ns_.load(std::memory_order_relaxed) > now_ns()) return false;
  const bool busy = (choice.score & kBusy) != 0;
  return n < (busy ? processors_ * kRingsPerProcessor : kRingsForRoom);
}

UringRing* UringPool::claim(size_t len, uint64_t avoid, uint32_t* index,
                            UringFailure* failure) noexcept {
  *failure = kPoolIsFull;
  for (;;) {
    const uint32_t seen = size();
    const Choice choice = find(len, avoid);
    if (worth_growing(choice)) {
      const UringFailure grown = grow(seen);
      if (grown.error == 0) continue;
      if (choice.ring == nullptr) return *failure = grown, nullptr;
    }
    if (choice.ring == nullptr) return nullptr;
    // Another thread took or filled the ring meanwhile: choose again.
    if (!choice.ring->claim(len, (choice.score & kBusy) == 0)) continue;
    if (choice.empty) large_[choice.index].store(is_large(len), std::memory_order_relaxed);
    *index = choice.index;
    return choice.ring;
  }
}

// No error if there are more rings than `size_seen` now.
UringFailure UringPool::grow(uint32_t size_seen) noexcept {
  MutexLock lock(grow_mu_);
  const uint32_t n = size();
  if (n > size_seen) return {};
  if (n - lost() >= max_rings_) return kPoolIsFull;
  UringFailure failure = reopen_lost();
  if (failure.error == 0) return {};
  if (n == kUringMaxRings) return kPoolIsFull;
  growing_.store(true, std::memory_order_relaxed);
  std::unique_ptr<UringRing> ring = UringRing::open(slots_of_ring(n), tagged_, &failure);
  growing_.store(false, std::memory_order_relaxed);
  if (ring == nullptr) {
    no_luxury_until_ns_.store(now_ns() + kNoLuxuryNs, std::memory_order_relaxed);
    return failure;
  }
  rings_[n] = ring.release();
  size_.store(n + 1, std::memory_order_release);
  return {};
}

// Reopens a lost ring that has drained.
UringFailure UringPool::reopen_lost() noexcept {
  UringFailure failure{-EBUSY, ""};
  const uint32_t n = size();
  for (uint32_t i = 0; i < n && failure.error != 0; ++i) failure = rings_[i]->reopen();
  return failure;
}

uint32_t UringPool::lost() const noexcept {
  const uint32_t n = size();
  uint32_t lost = 0;
  for (uint32_t i = 0; i < n; ++i) lost += rings_[i]->is_lost() ? 1 : 0;
  return lost;
}

bool UringPool::handle_losses(bool* hidden) noexcept {
  const uint32_t n = size();
  bool found = false;
  for (uint32_t i = 0; i < n; ++i) found |= rings_[i]->claim_loss(hidden);
  return found;
}

void UringPool::forget_in_child() noexcept {
  forget_rings_in_child();
  const uint32_t n = size();
  for (uint32_t i = 0; i < n; ++i) rings_[i]->close_in_child();
  size_.store(0, std::memory_order_release);
  grow_mu_.reset_in_child();
  growing_.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
