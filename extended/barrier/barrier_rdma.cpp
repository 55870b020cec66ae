// Implements the barrier across nodes by RDMA, a state machine on the node's board. named_barrier.cpp and
// team_barrier.cpp drive it; barrier_shared_memory.cpp sends its mail.
#include "extended/barrier/barrier_rdma.hpp"

#include "extended/barrier/barrier_shm.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {

using board_word::is_of;
using board_word::name_in;

RdmaBarrier::RdmaBarrier(Place place)
    : place_(std::move(place)), rounds_(rounds_of(place_.nodes)), epoch_(place_.epoch) {}

// ---- this rank ----

void RdmaBarrier::start(BarrierName mine, bool /*no_names*/) noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  epoch_.store(epoch, std::memory_order_relaxed);
  BarrierBoard::Place& place = arrival(epoch & 1, place_.index);
  place.processor.store(processor_word(), std::memory_order_relaxed);
  place.word.store(board_word::make(epoch, mine), std::memory_order_seq_cst);
  (void)advance(true);
}

bool RdmaBarrier::has_result(uint32_t epoch, uint64_t* word) const noexcept {
  *word = place_.board->results[epoch & 1].word.load(std::memory_order_acquire);
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

uint32_t RdmaBarrier::drive() noexcept {
  uint64_t word = 0;
  return has_result(epoch_.load(std::memory_order_relaxed), &word) ? 0 : advance(false);
}

// ---- the node ----

// A hint, read without the lock. Tests only the next missing rank: a waiting rank then reads one cache
// line, which changes only when that rank arrives.
bool RdmaBarrier::can_advance() const noexcept {
  const BarrierBoard& board = *place_.board;
  const uint32_t epoch = board.drive.finished.load(std::memory_order_relaxed) + 1;
  const uint32_t step = board.drive.step.load(std::memory_order_relaxed);
  if (step == 0) {
    const uint32_t next = board.drive.next.load(std::memory_order_relaxed);
    return next < ranks_here() &&
           is_of(arrival(epoch & 1, next).word.load(std::memory_order_seq_cst), epoch);
  }
  if (step > rounds_) return false;
  if (board.drive.sent.load(std::memory_order_relaxed) == 0)
    return !refused_.load(std::memory_order_relaxed);
  return is_of(board.mail[epoch & 1][step - 1].load(std::memory_order_relaxed), epoch);
}

inline bool RdmaBarrier::try_lock() noexcept {
  return place_.board->drive.busy.exchange(1, std::memory_order_seq_cst) == 0;
}

// Returns the number of steps made. A rank that has just arrived always tries the lock. If another rank
// holds the lock, that rank checks again after unlocking and so sees this arrival.
uint32_t RdmaBarrier::advance(bool has_just_come) noexcept {
  uint32_t steps = 0;
  bool published = false;
  refused_.store(false, std::memory_order_relaxed);
  while ((has_just_come || can_advance()) && try_lock()) {
    has_just_come = false;
    steps += advance_locked(&published);
    place_.board->drive.busy.exchange(0, std::memory_order_seq_cst);
  }
  if (published) wake_others();
  return steps;
}

uint32_t RdmaBarrier::advance_locked(bool* published) noexcept {
  BarrierBoard::Drive& drive = place_.board->drive;
  const uint32_t epoch = drive.finished.load(std::memory_order_relaxed) + 1;
  uint32_t steps = 0;
  if (drive.step.load(std::memory_order_relaxed) == 0 && !gather(epoch, &steps)) return steps;
  if (!exchange_mail(epoch, &steps)) return steps;
  publish(epoch);
  *published = true;
  return steps + 1;
}

// Returns true once all ranks of the node have arrived.
bool RdmaBarrier::gather(uint32_t epoch, uint32_t* steps) noexcept {
  BarrierBoard::Drive& drive = place_.board->drive;
  uint32_t next = drive.next.load(std::memory_order_relaxed);
  const uint32_t before = next;
  BarrierName joined = name_in(drive.joined.load(std::memory_order_relaxed));
  for (; next < ranks_here(); ++next) {
    const uint64_t word = arrival(epoch & 1, next).word.load(std::memory_order_seq_cst);
    if (!is_of(word, epoch)) break;
    joined = join(joined, name_in(word));
  }
  *steps += next - before;
  drive.joined.store(board_word::make(epoch, joined), std::memory_order_relaxed);
  drive.next.store(next, std::memory_order_relaxed);
  if (next < ranks_here()) return false;
  drive.sent.store(0, std::memory_order_relaxed);
  drive.step.store(1, std::memory_order_relaxed);
  return true;
}

// Returns true once the last round is over.
bool RdmaBarrier::exchange_mail(uint32_t epoch, uint32_t* steps) noexcept {
  BarrierBoard::Drive& drive = place_.board->drive;
  uint32_t step = drive.step.load(std::memory_order_relaxed);
  uint64_t joined = drive.joined.load(std::memory_order_relaxed);
  for (; step <= rounds_; ++*steps) {
    if (drive.sent.load(std::memory_order_relaxed) == 0) {
      const Status status = place_.mail->post(epoch & 1, step - 1, joined);
      if (status != Status::kOk) [[unlikely]] {
        refused_.store(true, std::memory_order_relaxed);
        return false;
      }
      drive.sent.store(1, std::memory_order_relaxed);
      ++*steps;
    }
    const uint64_t word = place_.board->mail[epoch & 1][step - 1].load(std::memory_order_acquire);
    if (!is_of(word, epoch)) return false;
    joined = board_word::make(epoch, join(name_in(joined), name_in(word)));
    drive.joined.store(joined, std::memory_order_relaxed);
    drive.sent.store(0, std::memory_order_relaxed);
    drive.step.store(++step, std::memory_order_relaxed);
  }
  return true;
}

// Moves the machine to the next epoch before it publishes the result. Otherwise ranks that see the
// result and start the next barrier would find the old state.
void RdmaBarrier::publish(uint32_t epoch) noexcept {
  BarrierBoard::Drive& drive = place_.board->drive;
  const uint64_t joined = drive.joined.load(std::memory_order_relaxed);
  drive.joined.store(0, std::memory_order_relaxed);
  drive.next.store(0, std::memory_order_relaxed);
  drive.step.store(0, std::memory_order_relaxed);
  drive.finished.store(epoch, std::memory_order_relaxed);
  place_.board->results[epoch & 1].word.store(joined, std::memory_order_release);
}

void RdmaBarrier::wake_others() noexcept {
  if (place_.transport == nullptr) return;
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (index != place_.index) place_.transport->wake_peer(place_.ranks[index]);
  }
}

// ---- waiting ----

// False while another rank drives: if that rank is stopped, staying awake is useless.
bool RdmaBarrier::ready() const noexcept {
  uint64_t word = 0;
  if (has_result(epoch_.load(std::memory_order_relaxed), &word)) return true;
  return place_.board->drive.busy.load(std::memory_order_relaxed) == 0 && can_advance();
}

WaitsFor RdmaBarrier::waits_for() const noexcept {
  BarrierBoard& board = *place_.board;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  uint64_t word = 0;
  if (has_result(epoch, &word)) return WaitsFor::kOtherProcessors;
  if (rounds_ != 0) {
    const uint64_t me = uint64_t{epoch} << 32 | (place_.index + 1);
    uint64_t watcher = board.watcher.load(std::memory_order_relaxed);
    if (watcher == me) return WaitsFor::kAdapter;
    if (watcher >> 32 != epoch &&
        board.watcher.compare_exchange_strong(watcher, me, std::memory_order_relaxed))
      return WaitsFor::kAdapter;
  }
  if (board.drive.step.load(std::memory_order_relaxed) != 0) return WaitsFor::kUnknown;
  const uint64_t here = processor_word();
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (is_of(arrival(epoch & 1, index).word.load(std::memory_order_relaxed), epoch)) continue;
    // The processor on which the rank arrived last time.
    if (arrival((epoch & 1) ^ 1, index).processor.load(std::memory_order_relaxed) == here)
      return WaitsFor::kThisProcessor;
  }
  return WaitsFor::kOtherProcessors;
}

// Lists the missing ranks of this node. If all have arrived, names the node whose mail is missing,
// although it may itself wait for another node.
void RdmaBarrier::find_missing(MissingRanks* missing) const noexcept {
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
  uint64_t word = 0;
  if (has_result(epoch, &word)) return;
  for (uint32_t index = 0; index < ranks_here(); ++index) {
    if (!is_of(arrival(epoch & 1, index).word.load(std::memory_order_relaxed), epoch))
      missing->add(place_.ranks[index]);
  }
  if (!missing->empty() || rounds_ == 0) return;
  // Step 0: a rank is just detecting that all have arrived.
  const uint32_t step = place_.board->drive.step.load(std::memory_order_relaxed);
  missing->add(place_.sources[step == 0 ? 0 : std::min(step, rounds_) - 1]);
}

}  // namespace hydrant
