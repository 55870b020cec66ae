// Implements the barriers by Active Messages: AMDISSEM and AMCENTRAL. named_barrier.cpp and team_barrier.cpp
// drive them; handlers in barriers.cpp call receive().
#include "extended/barrier/barrier_messages.hpp"

#include <immintrin.h>

namespace hydrant {
namespace {

// A name and a count in one word: bits 0-1 state, 2-31 count, 32-63 id.
constexpr uint64_t kOne = 4;
constexpr uint64_t pack(uint64_t count, BarrierName name) noexcept {
  return uint64_t{name.id} << 32 | count << 2 | state_bits(name);
}
constexpr uint32_t count_of(uint64_t word) noexcept { return static_cast<uint32_t>(word) >> 2; }
constexpr BarrierName unpack(uint64_t word) noexcept {
  return name_from(static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32));
}

}  // namespace

// ---- common part ----

void MessageBarrier::start(BarrierName mine, bool no_names) noexcept {
  while (busy_.exchange(true, std::memory_order_acquire)) _mm_pause();
  epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  joined_ = mine;
  no_names_ = no_names;
  done_.store(size_ == 1, std::memory_order_relaxed);
  begin();
  if (size_ > 1) (void)advance();
  busy_.store(false, std::memory_order_release);
}

bool MessageBarrier::finish(BarrierName* all) noexcept {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  if (!done_.load(std::memory_order_relaxed)) (void)advance();
  const bool done = done_.load(std::memory_order_relaxed);
  if (done) *all = joined_;
  busy_.store(false, std::memory_order_release);
  return done;
}

uint32_t MessageBarrier::make_progress() noexcept {
  if (done_.load(std::memory_order_relaxed)) return 0;
  if (busy_.exchange(true, std::memory_order_acquire)) return 0;
  const uint32_t steps = done_.load(std::memory_order_relaxed) ? 0 : advance();
  busy_.store(false, std::memory_order_release);
  return steps;
}

bool MessageBarrier::ready() const noexcept {
  return done_.load(std::memory_order_relaxed) || can_advance();
}

BarrierMessage MessageBarrier::message(uint32_t round) const noexcept {
  return {.parity = parity(),
          .round = round,
          .name = joined_,
          .with_id = !no_names_ || joined_.state == NameState::kMismatch};
}

// ---- dissemination ----

DisseminationBarrier::DisseminationBarrier(Rank rank, Rank size, BarrierMessageSender& sender)
    : MessageBarrier(rank, size, sender) {
  for (uint64_t reach = 1; reach < size; reach *= 2) ++rounds_;
}

Rank DisseminationBarrier::source(uint32_t round) const noexcept {
  return static_cast<Rank>((uint64_t{rank_} + size_ - (uint64_t{1} << round)) % size_);
}

bool DisseminationBarrier::receive(Rank from, const BarrierMessage& message) noexcept {
  if (message.round >= rounds_ || from != source(message.round)) return false;
  std::atomic<uint64_t>& slot = slots_[message.parity & 1][message.round];
  return slot.exchange(pack(1, message.name), std::memory_order_release) == 0;
}

void DisseminationBarrier::begin() noexcept {
  round_.store(0, std::memory_order_relaxed);
  sent_ = false;
}

uint32_t DisseminationBarrier::advance() noexcept {
  uint32_t steps = 0;
  uint32_t round = round_.load(std::memory_order_relaxed);
  for (; round < rounds_; ++steps) {
    if (!sent_) {
      const auto to = static_cast<Rank>((uint64_t{rank_} + (uint64_t{1} << round)) % size_);
      if (!sender_.send(to, message(round))) return steps;
      sent_ = true;
    }
    std::atomic<uint64_t>& slot = slots_[parity()][round];
    if (slot.load(std::memory_order_relaxed) == 0) return steps;
    joined_ = join(joined_, unpack(slot.exchange(0, std::memory_order_acquire)));
    sent_ = false;
    round_.store(++round, std::memory_order_relaxed);
  }
  done_.store(true, std::memory_order_relaxed);
  return steps;
}

bool DisseminationBarrier::can_advance() const noexcept {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  return round < rounds_ && slots_[parity()][round].load(std::memory_order_relaxed) != 0;
}

// Adds the source of this round, although that rank may itself wait for another.
void DisseminationBarrier::find_missing(MissingRanks* missing) const noexcept {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (round < rounds_) missing->add(source(round));
}

// ---- AMCENTRAL: all through rank 0 ----

CentralBarrier::CentralBarrier(Rank rank, Rank size, BarrierMessageSender& sender)
    : MessageBarrier(rank, size, sender) {
  if (rank != 0) return;
  for (auto& bits : arrived_) bits = std::make_unique<std::atomic<uint64_t>[]>((size + 63) / 64);
}

bool CentralBarrier::receive(Rank from, const BarrierMessage& message) noexcept {
  if (message.round != 0 || (rank_ == 0) == (from == 0) || from >= size_) return false;
  const uint32_t parity = message.parity & 1;
  if (rank_ == 0) {
    const uint64_t bit = uint64_t{1} << from % 64;
    const uint64_t before = arrived_[parity][from / 64].fetch_or(bit, std::memory_order_relaxed);
    if ((before & bit) != 0) return false;
  }
  std::atomic<uint64_t>& arrivals = arrivals_[parity];
  uint64_t word = arrivals.load(std::memory_order_relaxed);
  uint64_t joined = 0;
  do {
    joined = pack(count_of(word) + 1, join(unpack(word), message.name));
    // Pairs with the acquire in advance_*().
  } while (!arrivals.compare_exchange_weak(word, joined, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
  return true;
}

void CentralBarrier::begin() noexcept { next_ = rank_ == 0 ? 1 : 0; }

uint32_t CentralBarrier::advance() noexcept {
  return rank_ == 0 ? advance_centre() : advance_other();
}

uint32_t CentralBarrier::advance_centre() noexcept {
  uint32_t steps = 0;
  if (next_ == 1) {
    std::atomic<uint64_t>& arrivals = arrivals_[parity()];
    const uint64_t word = arrivals.load(std::memory_order_acquire);
    if (count_of(word) != size_ - 1) return steps;
    joined_ = join(joined_, unpack(word));
    for (Rank word_index = 0; word_index < (size_ + 63) / 64; ++word_index) {
      arrived_[parity()][word_index].store(0, std::memory_order_relaxed);
    }
    // No rank arrives for this parity again before it receives this message, so the word may be set.
    arrivals.store((size_ - 1) * kOne, std::memory_order_relaxed);
  }
  for (; next_ < size_; ++next_, ++steps) {
    if (!sender_.send(next_, message(0))) return steps;
  }
  arrivals_[parity()].store(0, std::memory_order_relaxed);
  done_.store(true, std::memory_order_relaxed);
  return steps;
}

uint32_t CentralBarrier::advance_other() noexcept {
  uint32_t steps = 0;
  if (next_ == 0) {
    if (!sender_.send(0, message(0))) return steps;
    next_ = 1;
    ++steps;
  }
  std::atomic<uint64_t>& arrivals = arrivals_[parity()];
  const uint64_t word = arrivals.load(std::memory_order_acquire);
  if (count_of(word) == 0) return steps;
  arrivals.store(0, std::memory_order_relaxed);
  joined_ = join(joined_, unpack(word));
  done_.store(true, std::memory_order_relaxed);
  return steps + 1;
}

bool CentralBarrier::can_advance() const noexcept {
  const uint32_t count = count_of(arrivals_[parity()].load(std::memory_order_relaxed));
  return count == (rank_ == 0 ? size_ - 1 : 1);
}

void CentralBarrier::find_missing(MissingRanks* missing) const noexcept {
  if (rank_ != 0) {
    missing->add(0);
    return;
  }
  for (Rank rank = 1; rank < size_; ++rank) {
    const uint64_t word = arrived_[parity()][rank / 64].load(std::memory_order_relaxed);
    if ((word >> rank % 64 & 1) == 0) missing->add(rank);
  }
}

}  // namespace hydrant
