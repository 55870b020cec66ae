// Implements GASNet-EX's barriers. barrier_calls.cpp calls it; the engines are barrier_shm.cpp,
// barrier_messages.cpp and barrier_rdma.cpp.
#include "extended/barrier/team_barrier.hpp"

#include <immintrin.h>

namespace hydrant {

// ---- counted ----

CountedBarrier::CountedBarrier(Rank rank, std::vector<BarrierLines> lines, Sleeping* sleeping,
                               bool threaded)
    : rank_(rank), lines_(std::move(lines)), sleeping_(sleeping), threaded_(threaded) {}

uint64_t CountedBarrier::begin() noexcept {
  if (threaded_) {
    while (busy_.exchange(true, std::memory_order_acquire)) _mm_pause();
  }
  const uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
  begun_.store(number, std::memory_order_relaxed);
  if (!lines_.empty()) {
    const BarrierLines& mine = lines_[rank_];
    mine.of_parity[number & 1][BarrierLines::kProcessor].store(processor_word(),
                                                               std::memory_order_relaxed);
    mine.of_parity[number & 1]->store(number, std::memory_order_release);
    fetch_for_writing(mine.of_parity[(number & 1) ^ 1]);
  }
  if (threaded_) busy_.store(false, std::memory_order_release);
  // The last arrival wakes sleeping ranks here, even if this rank computes before it waits.
  (void)is_done(number);
  return number;
}

bool CountedBarrier::is_done(uint64_t number) noexcept {
  const size_t size = lines_.size();
  for (size_t rank = 0; rank < size; ++rank) {
    if (rank != rank_ && !has_arrived(rank, number)) return false;
  }
  if (woken_.load(std::memory_order_relaxed) < number) {
    woken_.store(number, std::memory_order_relaxed);
    wake_all();
  }
  return true;
}

// Like ShmBarrier::wake_all().
void CountedBarrier::wake_all() noexcept {
  if (sleeping_ == nullptr) return;
  for (Rank rank = 0; rank < lines_.size(); ++rank) {
    if (rank != rank_) sleeping_->wake_peer(rank);
  }
}

bool CountedBarrier::ready(uint64_t number) const noexcept {
  for (size_t rank = 0; rank < lines_.size(); ++rank) {
    if (!has_arrived(rank, number)) return false;
  }
  return true;
}

WaitTarget CountedBarrier::wait_target(uint64_t number) const noexcept {
  const uint64_t here = processor_word();
  for (size_t rank = 0; rank < lines_.size(); ++rank) {
    if (has_arrived(rank, number)) continue;
    // The previous line has the processor on which the rank was.
    if (lines_[rank].of_parity[(number & 1) ^ 1][BarrierLines::kProcessor].load(
            std::memory_order_relaxed) == here)
      return WaitTarget::kThisProcessor;
  }
  return WaitTarget::kOtherProcessors;
}

void CountedBarrier::find_missing(uint64_t number, MissingRanks* missing) const noexcept {
  for (Rank rank = 0; rank < lines_.size(); ++rank) {
    if (!has_arrived(rank, number)) missing->add(rank);
  }
}

// ---- queued ----

uint64_t QueuedBarrier::begin() noexcept {
  while (busy_.exchange(true, std::memory_order_acquire)) _mm_pause();
  const uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
  begun_.store(number, std::memory_order_relaxed);
  (void)pump();
  if (done_.load(std::memory_order_relaxed) < number && !registered_) {
    progress_.add(make_progress, this, engine_->is_silent());
    registered_ = true;
  }
  busy_.store(false, std::memory_order_release);
  return number;
}

// Called with the lock. Returns the number of barriers started or finished.
uint32_t QueuedBarrier::pump() noexcept {
  uint32_t steps = 0;
  for (;; ++steps) {
    const uint64_t done = done_.load(std::memory_order_relaxed);
    if (running_) {
      BarrierName all;
      if (!engine_->finish(&all)) break;
      running_ = false;
      done_.store(done + 1, std::memory_order_release);
    } else if (begun_.load(std::memory_order_relaxed) > done) {
      engine_->start({}, true);
      running_ = true;
    } else {
      if (registered_) progress_.remove(make_progress, this);
      registered_ = false;
      break;
    }
  }
  return steps;
}

uint32_t QueuedBarrier::make_progress(void* self) noexcept {
  auto& barrier = *static_cast<QueuedBarrier*>(self);
  if (barrier.busy_.exchange(true, std::memory_order_acquire)) return 0;
  const uint32_t steps = barrier.pump();
  barrier.busy_.store(false, std::memory_order_release);
  return steps;
}

bool QueuedBarrier::is_done(uint64_t number) noexcept {
  if (done_.load(std::memory_order_acquire) >= number) return true;
  (void)make_progress(this);
  return done_.load(std::memory_order_acquire) >= number;
}

bool QueuedBarrier::ready(uint64_t number) const noexcept {
  return done_.load(std::memory_order_relaxed) >= number || engine_->ready();
}

WaitTarget QueuedBarrier::wait_target(uint64_t /*number*/) const noexcept {
  return engine_->wait_target();
}

void QueuedBarrier::find_missing(uint64_t number, MissingRanks* missing) const noexcept {
  if (done_.load(std::memory_order_relaxed) < number) engine_->find_missing(missing);
}

}  // namespace hydrant
