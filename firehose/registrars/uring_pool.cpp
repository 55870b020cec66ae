#include "firehose/registrars/uring_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint32_t kRingsPerSize = 16;
constexpr uint32_t kSizes[] = {256, 1024, 4096, 16384};

// What makes a ring a bad choice, worst first; below them, the bytes it has registered.
constexpr uint64_t kBusy = uint64_t{1} << 62;
constexpr uint64_t kWrongKind = uint64_t{1} << 61;
constexpr uint64_t kCrowded = uint64_t{1} << 60;

// Threads that find every ring busy open another, up to this many per processor: beyond that,
// waiting for the kernel's lock is the smaller evil.
constexpr uint32_t kRingsPerProcessor = 2;
// Crowding alone opens the small rings only: descriptors are scarce, too.
constexpr uint32_t kRingsForRoom = kRingsPerSize;

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
    : options_(options), processors_(online_processors()) {}

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
  return kSizes[std::min<size_t>(index / kRingsPerSize, std::size(kSizes) - 1)];
}

uint64_t UringPool::max_slots() const noexcept {
  uint64_t slots = 0;
  for (uint32_t i = 0; i < options_.max_rings; ++i) slots += slots_of_ring(i);
  return slots;
}

UringRing* UringPool::at(uint32_t index) const noexcept {
  return index < size() ? rings_[index] : nullptr;
}

uint64_t UringPool::score(const UringRing& ring, uint32_t index, uint64_t len) const noexcept {
  const uint64_t bytes = ring.registered_bytes();
  uint64_t score = std::min(bytes, kCrowded - 1);
  // An empty ring is of either kind until its first registration, and takes any length.
  if (bytes != 0) {
    if (large_[index].load(std::memory_order_relaxed) != is_large(len)) score |= kWrongKind;
    if (bytes + len > options_.crowded_bytes) score |= kCrowded;
  }
  if (!ring.idle()) score |= kBusy;
  return score;
}

// The first flawless ring, or the least bad one. Starts at a place of the processor's own, so that
// threads that run at the same time try different rings first.
UringPool::Choice UringPool::find(uint64_t len, uint32_t run) noexcept {
  const uint32_t n = size();
  Choice best;
  for (uint32_t step = 0, start = n != 0 ? this_processor() % n : 0; step < n; ++step) {
    const uint32_t index = start + step < n ? start + step : start + step - n;
    UringRing* ring = rings_[index];
    if (ring->free_slots() < run) continue;
    const uint64_t points = score(*ring, index, len);
    if (points < best.score) best = {ring, index, points};
    if (points < kCrowded) break;
  }
  return best;
}

bool UringPool::worth_growing(const Choice& choice) const noexcept {
  if (choice.score < kCrowded) return false;
  const uint32_t n = size();
  if (n >= options_.max_rings) return false;
  if (choice.ring == nullptr) return true;
  if (growing_.load(std::memory_order_relaxed)) return false;
  const bool busy = (choice.score & kBusy) != 0;
  return n < (busy ? processors_ * kRingsPerProcessor : kRingsForRoom);
}

UringRing* UringPool::claim(uint64_t len, uint32_t* index, int* error) noexcept {
  const auto run = static_cast<uint32_t>((len + kUringPieceBytes - 1) / kUringPieceBytes);
  *error = -EXFULL;
  for (;;) {
    const uint32_t seen = size();
    const Choice choice = find(len, run);
    if (worth_growing(choice)) {
      const int grown = grow(seen);
      if (grown == 0) continue;
      if (choice.ring == nullptr) return *error = grown, nullptr;
    }
    if (choice.ring == nullptr) return nullptr;
    // A flawless ring that somebody took meanwhile is flawless no more: look again.
    const bool flawless = choice.score < kCrowded;
    if (flawless && !choice.ring->claim_if_idle()) continue;
    if (!flawless) choice.ring->claim();
    if (choice.ring->registered_bytes() == 0) {
      large_[choice.index].store(is_large(len), std::memory_order_relaxed);
    }
    *index = choice.index;
    return choice.ring;
  }
}

// 0 if there are more rings than `size_seen` now, else minus an errno.
int UringPool::grow(uint32_t size_seen) noexcept {
  MutexLock lock(grow_mu_);
  const uint32_t n = size();
  if (n > size_seen) return 0;
  if (n >= options_.max_rings) return -EXFULL;
  growing_.store(true, std::memory_order_relaxed);
  int error = 0;
  std::unique_ptr<UringRing> ring = UringRing::open(slots_of_ring(n), tagged_, &error);
  growing_.store(false, std::memory_order_relaxed);
  if (ring == nullptr) return error;
  rings_[n] = ring.release();
  size_.store(n + 1, std::memory_order_release);
  return 0;
}

void UringPool::forget_in_child() noexcept {
  const uint32_t n = size();
  for (uint32_t i = 0; i < n; ++i) rings_[i]->close_in_child();
  size_.store(0, std::memory_order_release);
  grow_mu_.reset_in_child();
  growing_.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
