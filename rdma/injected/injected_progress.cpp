// Makes progress in the injected network: delivers messages and operations that are due, returns credits,
// completes operations. Its thread and every poll call advance().
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/injected/injected_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant {
namespace {

// Retry interval of sleepers for messages that the inner transport has no room for; polls retry at once.
constexpr uint64_t kRetryNs = 20'000;
// The same for atomic operations that find the target's adapter at work.
constexpr uint64_t kAdapterRetryNs = 200;
// The thread checks at this interval, and leaves work to polling clients for a grace period.
constexpr uint64_t kLookNs = 250'000;
constexpr uint64_t kGraceNs = 100'000;
// Checks without work after which the thread waits for a signal.
constexpr uint32_t kIdleLooks = 40;
constexpr uint64_t kRestNs = 3'600'000'000'000;

}  // namespace

void InjectedTransport::advance(uint64_t now) noexcept {
  if (now < next_due_ns_ && !is_blocked_) return;
  next_due_ns_ = UINT64_MAX;
  is_blocked_ = false;
  // Puts come first: messages wait for them.
  advance_operations(now);
  for (uint32_t i = 0; i < ranks_; ++i) {
    for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
      if (pairs_[i].streams[static_cast<uint32_t>(lane)].is_open())
        advance_stream(pairs_[i], lane, now);
    }
  }
  if (is_blocked_) next_due_ns_ = std::min(next_due_ns_, now + kRetryNs);
}

void InjectedTransport::advance_operations(uint64_t now) noexcept {
  for (uint32_t i = 0; i < operation_count_; ++i) {
    DelayedOperation& operation = operations_[i];
    if (!operation.is_copied && operation.copy_ns <= now) copy(operation);
    next_due_ns_ =
        std::min(next_due_ns_, operation.is_copied ? operation.done_ns : operation.copy_ns);
  }
}

void InjectedTransport::copy(DelayedOperation& operation) noexcept {
  Pair& pair = *operation.pair;
  operation.is_copied = true;
  if (operation.is_put) ++pair.puts_done;
  if (pair.is_lost) {
    operation.status = Status::kBroken;
    return;
  }
  if (operation.ends != nullptr) {
    operation.status = check_keys(operation);
    if (operation.status != Status::kOk) return;
  }
  if (operation.ends != nullptr && operation.ends->is_atomic) {
    operation.status = change_word(operation);
    if (operation.status != Status::kNotReady) return;
    operation.is_copied = false;
    operation.copy_ns += kAdapterRetryNs;
    return;
  }
  operation.status =
      operation.is_put
          ? there_.put(pair.peer, operation.remote, operation.local, operation.bytes, nullptr)
          : there_.get(pair.peer, operation.remote, operation.local, operation.bytes, nullptr);
}

void InjectedTransport::advance_stream(Pair& pair, Lane lane, uint64_t now) noexcept {
  InjectedStream& stream = pair.streams[static_cast<uint32_t>(lane)];
  while (stream.any_queued() && !pair.is_lost) {
    const uint32_t slot = stream.first_queued();
    const InjectedStream::Message& message = stream.message(slot);
    if (message.due_ns > now || message.puts_before > pair.puts_done) {
      next_due_ns_ = std::min(next_due_ns_, message.due_ns);
      break;
    }
    const Status passed = forward_message(pair, lane, slot);
    if (passed == Status::kNotReady) {
      is_blocked_ = true;
      break;
    }
    if (passed != Status::kOk) {
      fail_pair(pair);
      break;
    }
    stream.dequeue();
    stream.start_return(slot, now + network_.delay_ns);
  }
  next_due_ns_ = std::min(next_due_ns_, stream.finish_returns(now));
}

Status InjectedTransport::forward_message(Pair& pair, Lane lane, uint32_t slot) noexcept {
  InjectedStream& stream = pair.streams[static_cast<uint32_t>(lane)];
  const InjectedStream::Message& message = stream.message(slot);
  Outgoing room;
  const Status status = pair.channel->reserve(pair.peer, lane, message.head_bytes, &room);
  if (status == Status::kResource) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "injected network: %s; trying again", last_error_text());
    return Status::kNotReady;
  }
  if (status != Status::kOk) return status;
  std::memcpy(room.head, stream.head(slot), message.head_bytes);
  if (message.has_cell) {
    pair.channel->commit_with_cell(room, message.tag, message.cell, message.cell_bytes);
    release_cell(lane);
  } else {
    pair.channel->commit(room, message.tag);
  }
  return Status::kOk;
}

void InjectedTransport::release_cell(Lane lane) noexcept {
  --cells_out_[static_cast<uint32_t>(lane)];
}

// Discards everything under way to a failed peer; its operations complete with an error at the next poll.
void InjectedTransport::fail_pair(Pair& pair) noexcept {
  if (std::exchange(pair.is_lost, true)) return;
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    InjectedStream& stream = pair.streams[static_cast<uint32_t>(lane)];
    for (; stream.any_queued(); stream.dequeue()) {
      const uint32_t slot = stream.first_queued();
      if (stream.message(slot).has_cell) {
        pair.channel->drop_cell(pair.peer, lane, stream.message(slot).cell);
        release_cell(lane);
      }
      stream.put_back(slot);
    }
  }
  for (uint32_t i = 0; i < operation_count_; ++i) {
    DelayedOperation& operation = operations_[i];
    if (operation.pair != &pair) continue;
    if (!operation.is_copied && operation.is_put) ++pair.puts_done;
    operation.is_copied = true;
    operation.status = Status::kBroken;
    operation.done_ns = 0;
  }
  expect(0);
}

// Calls completions outside the lock, which the registrar takes: the callee may release pins.
uint32_t InjectedTransport::complete() noexcept {
  struct Finished {
    Completion* completion;
    Status status;
  };
  constexpr uint32_t kMax = 32;
  Finished finished[kMax];
  uint32_t count = 0;
  {
    const MutexLock lock(mu_);
    const uint64_t now = clock_();
    advance(now);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < operation_count_; ++i) {
      const DelayedOperation& operation = operations_[i];
      if (count < kMax && operation.is_copied && operation.done_ns <= now) {
        finished[count++] = {operation.completion, operation.status};
        if (operation.ends != nullptr) free_ends(operation.ends);
      } else {
        if (kept != i) operations_[kept] = operation;
        ++kept;
      }
    }
    operation_count_ = kept;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (finished[i].completion != nullptr)
      finished[i].completion->done(*finished[i].completion, finished[i].status);
  }
  return count;
}

uint32_t InjectedTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  const uint32_t completed = complete();
  return completed + inside_->poll(receiver, budget, replies_only);
}

// Counts a sleeper: what becomes due before *due_ns from now on wakes it. False: work is due now.
bool InjectedTransport::enter_sleep(uint64_t* due_ns) noexcept {
  const MutexLock lock(mu_);
  const uint64_t now = clock_();
  advance(now);
  *due_ns = next_due_ns_;
  if (*due_ns <= now) return false;
  ++sleepers_;
  return true;
}

void InjectedTransport::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  uint64_t due = 0;
  if (!enter_sleep(&due)) return;
  sleeping_there_.sleep(std::min(deadline_ns, due), check);
  const MutexLock lock(mu_);
  --sleepers_;
}

bool InjectedTransport::announce_sleep(Announcement* announcement) noexcept {
  uint64_t due = 0;
  if (!enter_sleep(&due)) return false;
  if (sleeping_there_.announce_sleep(announcement)) {
    announcement->deadline_ns = std::min(announcement->deadline_ns, due);
    return true;
  }
  const MutexLock lock(mu_);
  --sleepers_;
  return false;
}

void InjectedTransport::end_sleep() noexcept {
  sleeping_there_.end_sleep();
  const MutexLock lock(mu_);
  --sleepers_;
}

bool InjectedTransport::is_sending() const noexcept {
  for (uint32_t i = 0; i < ranks_; ++i) {
    if (pairs_[i].puts_begun != pairs_[i].puts_done) return true;
    for (const InjectedStream& stream : pairs_[i].streams) {
      if (stream.any_queued()) return true;
    }
  }
  return false;
}

void InjectedTransport::flush(uint64_t deadline_ns) noexcept {
  for (;;) {
    if (mu_.try_lock()) {
      advance(clock_());
      const bool is_flushed = !is_sending();
      mu_.unlock();
      if (is_flushed) return;
    }
    if (now_ns() >= deadline_ns) return;
    uncancelled::sleep_ns(kRetryNs);
  }
}

void InjectedTransport::disconnect(Rank peer) noexcept {
  Pair* pair = pair_with(peer);
  if (pair == nullptr) return;
  {
    const MutexLock lock(mu_);
    fail_pair(*pair);
  }
  inside_->disconnect(peer);
}

// ---- the thread ----

void* InjectedTransport::run_thread(void* self) noexcept {
  pthread_setname_np(pthread_self(), "hydrant-wire");
  static_cast<InjectedTransport*>(self)->run_in_background();
  return nullptr;
}

void InjectedTransport::run_in_background() noexcept {
  for (uint32_t idle = 0;;) {
    {
      const MutexLock lock(mu_);
      if (ends_) return;
      const uint64_t now = clock_();
      if (next_due_ns_ != UINT64_MAX || is_blocked_) idle = 0;
      if (next_due_ns_ < now - kGraceNs || is_blocked_) advance(now);
      if (++idle > kIdleLooks) {
        rests_ = true;
        while (rests_ && !ends_) (void)work_.wait_until(mu_, now_ns() + kRestNs);
        idle = 0;
      }
    }
    uncancelled::sleep_ns(kLookNs);
  }
}

}  // namespace hydrant
