// Implements the barrier of ranks that share memory. named_barrier.cpp and team_barrier.cpp drive it; the
// lines lie in the transport's shared blocks.
#include "extended/barrier/barrier_shm.hpp"

#include <algorithm>
#include <cmath>
#include <immintrin.h>

namespace hydrant {
namespace {

// Maximum for one round: with more ranks, readers of a line delay each other. Gives two rounds up to 256
// ranks.
constexpr uint32_t kMaxFlat = 16;

// The smallest radix whose rounds fit into a line.
uint32_t min_radix(uint32_t ranks) noexcept {
  uint32_t radix = 2;
  for (;; ++radix) {
    uint64_t covered = 1;
    for (uint32_t round = 0; round < BarrierLines::kRounds; ++round) covered *= radix;
    if (covered >= ranks) return radix;
  }
}

}  // namespace

BarrierLines barrier_lines(const MemoryAccess& memory, Rank rank, uint32_t which) noexcept {
  std::byte* block = memory.shared_block(rank);
  if (block == nullptr) return {};
  BarrierLines lines;
  for (uint32_t parity = 0; parity < 2; ++parity) {
    void* line = block + size_t{128} * parity + size_t{64} * which;
    lines.of_parity[parity] = static_cast<std::atomic<uint64_t>*>(line);
  }
  return lines;
}

uint32_t choose_barrier_radix(uint32_t ranks, bool crowded) noexcept {
  if (ranks <= kMaxFlat || crowded) return ranks < 2 ? 2 : ranks;
  uint32_t rounds = 1;
  for (uint64_t reach = kMaxFlat; reach < ranks; reach *= kMaxFlat) ++rounds;
  const auto root = std::pow(static_cast<double>(ranks), 1.0 / rounds);
  const auto radix = static_cast<uint32_t>(std::ceil(root - 1e-9));
  return limit_barrier_radix(ranks, radix);
}

uint32_t limit_barrier_radix(uint32_t ranks, uint32_t radix) noexcept {
  return std::max(min_radix(ranks), std::min(radix, ranks));
}

ShmBarrier::ShmBarrier(Config config) : config_(std::move(config)) {
  const uint64_t size = config_.size;
  for (uint64_t stride = 1; stride < size; stride *= config_.radix) {
    const auto index = static_cast<uint32_t>(rounds_.size());
    Round& round = rounds_.emplace_back();
    for (uint64_t step = stride; step < stride * config_.radix && step < size; step += stride) {
      const auto before = static_cast<Rank>((config_.rank + size - step) % size);
      const BarrierLines& lines = config_.lines[before];
      round.sources.push_back(
          {.rank = before, .of_parity = {lines.of_parity[0] + index, lines.of_parity[1] + index}});
      round.readers.push_back(static_cast<Rank>((config_.rank + step) % size));
    }
  }
  round_.store(rounds(), std::memory_order_relaxed);
}

// Pairs with the acquire in look_at(): stores before the barrier are visible to ranks that pass it.
inline void ShmBarrier::publish(uint32_t round) noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  const BarrierLines& mine = config_.lines[config_.rank];
  now_ = make_word(epoch, joined_);
  if (round == 0) {
    mine.of_parity[epoch & 1][BarrierLines::kProcessor].store(processor_word(),
                                                              std::memory_order_relaxed);
  }
  mine.of_parity[epoch & 1][round].store(now_, std::memory_order_release);
  if (round == 0) fetch_for_writing(mine.of_parity[(epoch & 1) ^ 1]);
  if (rounds_.size() == 1 || config_.sleeping == nullptr) return;
  for (const Rank reader : rounds_[round].readers) config_.sleeping->wake_peer(reader);
}

void ShmBarrier::start(BarrierName mine, bool no_names) noexcept {
  const bool shared = rounds_.size() > 1;
  if (shared) {
    while (busy_.exchange(true, std::memory_order_acquire)) _mm_pause();
  }
  epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  round_.store(0, std::memory_order_relaxed);
  joined_ = mine;
  no_names_ = no_names;
  next_ = 0;
  if (!rounds_.empty()) {
    publish(0);
    // The last arrival wakes sleeping ranks here, even if this rank computes before it waits.
    (void)look();
  }
  if (shared) busy_.store(false, std::memory_order_release);
}

bool ShmBarrier::finish(BarrierName* all) noexcept {
  const bool shared = rounds_.size() > 1;
  if (shared && busy_.exchange(true, std::memory_order_acquire)) return false;
  const bool done = look();
  if (done) *all = joined_;
  if (shared) busy_.store(false, std::memory_order_release);
  return done;
}

uint32_t ShmBarrier::make_progress() noexcept {
  if (rounds_.size() <= 1 || busy_.exchange(true, std::memory_order_acquire)) return 0;
  const uint32_t before = round_.load(std::memory_order_relaxed);
  (void)look();
  const uint32_t after = round_.load(std::memory_order_relaxed);
  busy_.store(false, std::memory_order_release);
  return after - before;
}

inline bool ShmBarrier::look() noexcept {
  uint32_t round = round_.load(std::memory_order_relaxed);
  while (round < rounds_.size()) {
    if (!look_at(rounds_[round])) return false;
    round_.store(++round, std::memory_order_relaxed);
    next_ = 0;
    if (round < rounds_.size()) {
      publish(round);
    } else if (round == 1) {
      wake_all();
    }
  }
  return true;
}

// Returns true once all sources of the round have arrived. Usually their words equal this rank's word.
inline bool ShmBarrier::look_at(Round& round) noexcept {
  const uint32_t parity = epoch_.load(std::memory_order_relaxed) & 1;
  const auto count = static_cast<uint32_t>(round.sources.size());
  for (; next_ < count; ++next_) {
    const uint64_t word = round.sources[next_].of_parity[parity]->load(std::memory_order_acquire);
    if (word == now_) continue;
    if (!is_now(word)) return false;
    const BarrierName theirs =
        name_from(static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32));
    if (no_names_ && theirs.state != NameState::kMismatch) continue;
    joined_ = join(joined_, theirs);
  }
  return true;
}

// A rank that sees all arrivals wakes the sleeping ranks; the last arrival always does. If two ranks
// arrive at once without seeing each other, both are awake or about to check again before they sleep. A
// missed wakeup only costs the time until the sleep ends.
void ShmBarrier::wake_all() noexcept {
  if (config_.sleeping == nullptr) return;
  for (const Source& source : rounds_[0].sources) config_.sleeping->wake_peer(source.rank);
}

bool ShmBarrier::ready() const noexcept {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (round >= rounds_.size()) return true;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  for (const Source& source : rounds_[round].sources) {
    const uint64_t word = source.of_parity[epoch & 1]->load(std::memory_order_relaxed);
    if (((word ^ make_word(epoch, {})) & kEpochMask) != 0) return false;
  }
  return true;
}

WaitTarget ShmBarrier::wait_target() const noexcept {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (round >= rounds_.size()) return WaitTarget::kOtherProcessors;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  const uint64_t here = processor_word();
  for (const Source& source : rounds_[round].sources) {
    const uint64_t word = source.of_parity[epoch & 1]->load(std::memory_order_relaxed);
    if (((word ^ make_word(epoch, {})) & kEpochMask) == 0) continue;
    // The rank has not arrived; its previous line has the processor on which it was.
    const BarrierLines& lines = config_.lines[source.rank];
    if (lines.of_parity[(epoch & 1) ^ 1][BarrierLines::kProcessor].load(
            std::memory_order_relaxed) == here)
      return WaitTarget::kThisProcessor;
  }
  // With one round, an arrived rank has nothing left to do. With several, other ranks of this processor
  // may have to continue.
  return rounds_.size() == 1 ? WaitTarget::kOtherProcessors : WaitTarget::kUnknown;
}

void ShmBarrier::find_missing(MissingRanks* missing) const noexcept {
  if (rounds_.empty()) return;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  for (Rank rank = 0; rank < config_.size; ++rank) {
    // The first word shows that a rank has arrived, the other words its progress.
    const uint64_t word = config_.lines[rank].of_parity[epoch & 1]->load(std::memory_order_relaxed);
    if (((word ^ make_word(epoch, {})) & kEpochMask) != 0) missing->add(rank);
  }
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (!missing->empty() || round >= rounds_.size()) return;
  // All ranks have arrived, but some have not finished the earlier rounds.
  for (const Source& source : rounds_[round].sources) {
    const uint64_t word = source.of_parity[epoch & 1]->load(std::memory_order_relaxed);
    if (((word ^ make_word(epoch, {})) & kEpochMask) != 0) missing->add(source.rank);
  }
}

}  // namespace hydrant
