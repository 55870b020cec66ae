// Implements the lock-free slot table of one ring: bitmap, records, generations. UringRing calls it on each
// registration.
#include "firehose/registrars/uring/uring_slots.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace hydrant {
namespace {

constexpr uint64_t kFull = ~uint64_t{0};

constexpr uint64_t mask_of(uint32_t first_bit, uint32_t count) noexcept {
  return (count == 64 ? kFull : (uint64_t{1} << count) - 1) << first_bit;
}

// The lowest bit at which `count` clear bits of `word` begin; 64 if there is none.
constexpr uint32_t find_clear(uint64_t word, uint32_t count) noexcept {
  if (count == 1) return static_cast<uint32_t>(std::countr_one(word));
  for (uint32_t bit = 0; bit + count <= 64; ++bit) {
    if ((word & mask_of(bit, count)) == 0) return bit;
  }
  return 64;
}

}  // namespace

bool UringSlots::make(uint32_t slots) noexcept {
  words_ = (slots + 63) / 64;
  taken_.reset(new (std::nothrow) std::atomic<uint64_t>[words_]());
  records_.reset(new (std::nothrow) Record[slots]);
  if (taken_ == nullptr || records_ == nullptr) return false;
  // Bits beyond the table count as taken.
  if (slots % 64 != 0) taken_[words_ - 1].store(kFull << (slots % 64), std::memory_order_relaxed);
  size_ = slots;
  return true;
}

bool UringSlots::take(uint32_t count, uint32_t* first) noexcept {
  uint32_t word = next_word_.load(std::memory_order_relaxed);
  // With count == 1 a free slot exists, but other threads may move it during the search. Three laps suffice
  // for the few threads that can be inside at once.
  for (uint32_t step = 0; step < 3 * words_; ++step) {
    uint64_t seen = taken_[word].load(std::memory_order_relaxed);
    for (uint32_t bit = find_clear(seen, count); bit < 64; bit = find_clear(seen, count)) {
      if (!taken_[word].compare_exchange_weak(seen, seen | mask_of(bit, count),
                                              std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
        continue;
      }
      if (step != 0) next_word_.store(word, std::memory_order_relaxed);
      *first = word * 64 + bit;
      return true;
    }
    if (++word == words_) word = 0;
  }
  return false;
}

void UringSlots::give(uint32_t first, uint32_t count) noexcept {
  while (count > 0) {
    const uint32_t bit = first % 64, n = std::min(count, 64 - bit);
    taken_[first / 64].fetch_and(~mask_of(bit, n), std::memory_order_release);
    first += n;
    count -= n;
  }
}

uint32_t UringSlots::publish(uint32_t slot, MemoryRange range, uint64_t charge_bytes) noexcept {
  Record& record = records_[slot];
  record.addr.store(range.addr, std::memory_order_relaxed);
  record.len.store(range.len, std::memory_order_relaxed);
  record.charge_bytes.store(charge_bytes, std::memory_order_relaxed);
  // Only the owner of the slot changes an even generation.
  const uint32_t generation = record.generation.load(std::memory_order_relaxed) + 1;
  record.generation.store(generation, std::memory_order_release);
  return generation;
}

bool UringSlots::retire(UringRun run, MemoryRange range, uint64_t* charge_bytes) noexcept {
  if (!is_live(run)) return false;
  Record& record = records_[run.first];
  if (record.addr.load(std::memory_order_relaxed) != range.addr ||
      record.len.load(std::memory_order_relaxed) != range.len) {
    return false;
  }
  *charge_bytes = record.charge_bytes.load(std::memory_order_relaxed);
  // Fails if another caller was faster. On success the values read above belong to this generation.
  return record.generation.compare_exchange_strong(
      run.generation, run.generation + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
}

bool UringSlots::find(UringRun run, MemoryRange* range) const noexcept {
  if (!is_live(run)) return false;
  const Record& record = records_[run.first];
  *range = {record.addr.load(std::memory_order_relaxed),
            record.len.load(std::memory_order_relaxed)};
  return true;
}

}  // namespace hydrant
