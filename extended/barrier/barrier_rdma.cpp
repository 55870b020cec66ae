// Implements the barrier across nodes by RDMA, a state machine on the node's shared state. named_barrier.cpp
// and team_barrier.cpp drive it; barrier_rdma_memory.cpp sends its words.
#include "extended/barrier/barrier_rdma.hpp"

#include "extended/barrier/barrier_shm.hpp"
#include "firehose/base/planted_defect.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {

using barrier_word::is_of;
using barrier_word::name_in;

RdmaBarrier::RdmaBarrier(Config config)
    : config_(std::move(config)), rounds_(rounds_of(config_.nodes)), epoch_(config_.epoch) {
  uint32_t rounds = 0;
  for (uint32_t round = config_.index; round < rounds_; round += ranks_here())
    rounds |= uint32_t{1} << round;
  posted_rounds_.store(rounds, std::memory_order_relaxed);
}

// ---- this rank ----

void RdmaBarrier::start(BarrierName mine, bool /*no_names*/) noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  epoch_.store(epoch, std::memory_order_relaxed);
  BarrierRdmaState::Slot& slot = arrival(epoch & 1, config_.index);
  slot.processor.store(processor_word(), std::memory_order_relaxed);
  slot.word.store(barrier_word::make(epoch, mine), std::memory_order_seq_cst);
  (void)advance(true);
}

bool RdmaBarrier::has_result(uint32_t epoch, uint64_t* word) const noexcept {
  *word = config_.shared->results[epoch & 1].word.load(std::memory_order_acquire);
  return is_of(*word, epoch);
}

bool RdmaBarrier::finish(BarrierName* all) noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  uint64_t word = 0;
  if (!has_result(epoch, &word)) {
    if (advance(false) == 0 || !has_result(epoch, &word)) return false;
  }
  *all = name_in(word);
  return true;
}

uint32_t RdmaBarrier::make_progress() noexcept {
  uint64_t word = 0;
  return has_result(epoch_.load(std::memory_order_relaxed), &word) ? 0 : advance(false);
}

// ---- the node ----

// A hint, read without the lock. Tests only the next missing rank: a waiting rank then reads one cache
// line, which changes only when that rank arrives.
bool RdmaBarrier::can_advance() const noexcept {
  const BarrierRdmaState& shared = *config_.shared;
  const uint32_t epoch = shared.progress_state.finished.load(std::memory_order_relaxed) + 1;
  const uint32_t step = shared.progress_state.step.load(std::memory_order_relaxed);
  if (step == 0) {
    const uint32_t next = shared.progress_state.next.load(std::memory_order_relaxed);
    return next < ranks_here() &&
           is_of(arrival(epoch & 1, next).word.load(std::memory_order_seq_cst), epoch);
  }
  if (step > rounds_) return false;
  if (shared.progress_state.sent.load(std::memory_order_relaxed) == 0)
    return !refused_.load(std::memory_order_relaxed) && (posts(step - 1) || is_my_turn(step - 1));
  return is_of(shared.words[epoch & 1][step - 1].load(std::memory_order_relaxed), epoch);
}

// Called by a rank that does not post the round's words, while the word is unsent. Another thread of this
// rank may store another word and time in between: then the turn begins later.
bool RdmaBarrier::is_my_turn(uint32_t round) const noexcept {
  const BarrierRdmaState::ProgressState& state = config_.shared->progress_state;
  const uint64_t word = uint64_t{state.finished.load(std::memory_order_relaxed)} << 32 |
                        (state.refusals.load(std::memory_order_relaxed) & 0xff'ffff) << 8 |
                        (round + 1);
  const uint64_t now = config_.clock();
  if (unsent_.load(std::memory_order_acquire) != word) {
    unsent_since_ns_.store(now, std::memory_order_relaxed);
    unsent_.store(word, std::memory_order_release);
  }
  const uint32_t ranks = ranks_here();
  const uint32_t places_behind = (config_.index + ranks - round % ranks) % ranks;
  return now >= unsent_since_ns_.load(std::memory_order_relaxed) + places_behind * config_.turn_ns;
}

bool RdmaBarrier::take_turn(uint32_t round) noexcept {
  if (!is_my_turn(round)) return false;
  posted_rounds_.fetch_or(uint32_t{1} << round, std::memory_order_relaxed);
  return true;
}

inline bool RdmaBarrier::try_lock() noexcept {
  return config_.shared->progress_state.busy.exchange(1, std::memory_order_seq_cst) == 0;
}

// Returns the number of steps made. A rank that has just arrived always tries the lock. If another rank
// holds the lock, that rank checks again after unlocking and so sees this arrival.
uint32_t RdmaBarrier::advance(bool has_just_arrived) noexcept {
  uint32_t steps = 0;
  auto wakes = Wakes::kNone;
  refused_.store(false, std::memory_order_relaxed);
  while ((has_just_arrived || can_advance()) && try_lock()) {
    has_just_arrived = false;
    steps += advance_locked(&wakes);
    config_.shared->progress_state.busy.exchange(0, std::memory_order_seq_cst);
  }
  if (wakes == Wakes::kAll)
    wake_others();
  else if (wakes == Wakes::kPoster)
    wake_poster();
  return steps;
}

uint32_t RdmaBarrier::advance_locked(Wakes* wakes) noexcept {
  BarrierRdmaState::ProgressState& state = config_.shared->progress_state;
  const uint32_t epoch = state.finished.load(std::memory_order_relaxed) + 1;
  uint32_t steps = 0;
  if (state.step.load(std::memory_order_relaxed) == 0 && !gather(epoch, &steps)) return steps;
  if (!exchange_words(epoch, &steps, wakes)) return steps;
  publish(epoch);
  *wakes = Wakes::kAll;
  return steps + 1;
}

// Returns true once all ranks of the node have arrived.
bool RdmaBarrier::gather(uint32_t epoch, uint32_t* steps) noexcept {
  BarrierRdmaState::ProgressState& state = config_.shared->progress_state;
  uint32_t next = state.next.load(std::memory_order_relaxed);
  const uint32_t before = next;
  BarrierName joined = name_in(state.joined.load(std::memory_order_relaxed));
  for (; next < ranks_here(); ++next) {
    const uint64_t word = arrival(epoch & 1, next).word.load(std::memory_order_seq_cst);
    if (!is_of(word, epoch)) break;
    joined = join(joined, name_in(word));
  }
  *steps += next - before;
  state.joined.store(barrier_word::make(epoch, joined), std::memory_order_relaxed);
  state.next.store(next, std::memory_order_relaxed);
  if (next < ranks_here()) return false;
  state.sent.store(0, std::memory_order_relaxed);
  state.step.store(1, std::memory_order_relaxed);
  return true;
}

// Returns true once the last round is over.
bool RdmaBarrier::exchange_words(uint32_t epoch, uint32_t* steps, Wakes* wakes) noexcept {
  BarrierRdmaState::ProgressState& state = config_.shared->progress_state;
  uint32_t step = state.step.load(std::memory_order_relaxed);
  uint64_t joined = state.joined.load(std::memory_order_relaxed);
  for (; step <= rounds_; ++*steps) {
    if (state.sent.load(std::memory_order_relaxed) == 0) {
      if (!posts(step - 1) && !take_turn(step - 1)) {
        *wakes = std::max(*wakes, Wakes::kPoster);
        return false;
      }
      if (post(epoch, step - 1, joined) != Status::kOk && !has_defect(Defect::kRefusedWord))
          [[unlikely]]
        return false;
      state.sent.store(1, std::memory_order_relaxed);
      ++*steps;
    }
    const uint64_t word =
        config_.shared->words[epoch & 1][step - 1].load(std::memory_order_acquire);
    if (!is_of(word, epoch)) return false;
    joined = barrier_word::make(epoch, join(name_in(joined), name_in(word)));
    state.joined.store(joined, std::memory_order_relaxed);
    state.sent.store(0, std::memory_order_relaxed);
    state.step.store(++step, std::memory_order_relaxed);
  }
  return true;
}

Status RdmaBarrier::post(uint32_t epoch, uint32_t round, uint64_t word) noexcept {
  const Status status = config_.writer->post(epoch & 1, round, word);
  if (status == Status::kOk) [[likely]]
    return status;
  if (status == Status::kNotReady)
    config_.shared->progress_state.refusals.fetch_add(1, std::memory_order_relaxed);
  refused_.store(true, std::memory_order_relaxed);
  return status;
}

// Moves the machine to the next epoch before it publishes the result. Otherwise ranks that see the
// result and start the next barrier would find the old state.
void RdmaBarrier::publish(uint32_t epoch) noexcept {
  BarrierRdmaState::ProgressState& state = config_.shared->progress_state;
  const uint64_t joined = state.joined.load(std::memory_order_relaxed);
  state.joined.store(0, std::memory_order_relaxed);
  state.next.store(0, std::memory_order_relaxed);
  state.step.store(0, std::memory_order_relaxed);
  state.finished.store(epoch, std::memory_order_relaxed);
  config_.shared->results[epoch & 1].word.store(joined, std::memory_order_release);
}

void RdmaBarrier::wake_others() noexcept {
  if (config_.sleeping == nullptr) return;
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (index != config_.index) config_.sleeping->wake_peer(config_.ranks[index]);
  }
}

// The poster of the word that this rank has left unsent may sleep.
void RdmaBarrier::wake_poster() noexcept {
  const uint32_t step = config_.shared->progress_state.step.load(std::memory_order_relaxed);
  if (config_.sleeping == nullptr || step == 0) return;
  const uint32_t poster = (step - 1) % ranks_here();
  if (poster != config_.index) config_.sleeping->wake_peer(config_.ranks[poster]);
}

// ---- waiting ----

// False while another rank drives: if that rank is stopped, staying awake is useless.
bool RdmaBarrier::ready() const noexcept {
  uint64_t word = 0;
  if (has_result(epoch_.load(std::memory_order_relaxed), &word)) return true;
  return config_.shared->progress_state.busy.load(std::memory_order_relaxed) == 0 && can_advance();
}

WaitTarget RdmaBarrier::wait_target() const noexcept {
  BarrierRdmaState& shared = *config_.shared;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  uint64_t word = 0;
  if (has_result(epoch, &word)) return WaitTarget::kOtherProcessors;
  if (rounds_ != 0) {
    const uint64_t me = uint64_t{epoch} << 32 | (config_.index + 1);
    uint64_t watcher = shared.watcher.load(std::memory_order_relaxed);
    if (watcher == me) return WaitTarget::kAdapter;
    if (watcher >> 32 != epoch &&
        shared.watcher.compare_exchange_strong(watcher, me, std::memory_order_relaxed))
      return WaitTarget::kAdapter;
  }
  if (shared.progress_state.step.load(std::memory_order_relaxed) != 0) return WaitTarget::kUnknown;
  const uint64_t here = processor_word();
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (is_of(arrival(epoch & 1, index).word.load(std::memory_order_relaxed), epoch)) continue;
    // The processor on which the rank arrived last time.
    if (arrival((epoch & 1) ^ 1, index).processor.load(std::memory_order_relaxed) == here)
      return WaitTarget::kThisProcessor;
  }
  return WaitTarget::kOtherProcessors;
}

// Lists the missing ranks of this node. If all have arrived, names the node whose word is missing,
// although it may itself wait for another node.
void RdmaBarrier::find_missing(MissingRanks* missing) const noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  uint64_t word = 0;
  if (has_result(epoch, &word)) return;
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (!is_of(arrival(epoch & 1, index).word.load(std::memory_order_relaxed), epoch))
      missing->add(config_.ranks[index]);
  }
  if (!missing->empty() || rounds_ == 0) return;
  // Step 0: a rank is just detecting that all have arrived.
  const uint32_t step = config_.shared->progress_state.step.load(std::memory_order_relaxed);
  missing->add(config_.sources[step == 0 ? 0 : std::min(step, rounds_) - 1]);
}

}  // namespace hydrant
