// Makes progress on remote pins of firehose.h that missed: sends declined requests again, requests room
// notices, runs completion callbacks, and reports long waits. firehose_remote.cpp starts the operations.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/gasnet_compat/firehose_remote.hpp"
#include "firehose/gasnet_compat/firehose_state.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>

namespace hydrant {

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
// Time between two tries of a declined operation: from a few round trips on, doubled up to the second value.
constexpr uint64_t kFirstRetryNs = 20'000;
constexpr uint64_t kLastRetryNs = 2 * kNsPerMs;

// Time from the last of so many refusals to the next try.
uint64_t pause_after(uint32_t times) noexcept {
  return std::min(kFirstRetryNs << std::min(times, 16u), kLastRetryNs);
}

// The shortest waiting request of each of a few nodes.
struct Awaited {
  uint32_t node;
  uintptr_t addr;
  size_t len;
};

}  // namespace

void CompatRemote::retry_later(CompatRemoteOp* op) noexcept {
  MutexLock lock(mu_);
  op->declined_ns = now_ns();
  op->retry_ns = op->declined_ns + pause_after(op->declined++);
  op->room_notified = false;
  op->state = CompatRemoteOp::State::kDeclined;
  declined_.fetch_add(1, std::memory_order_relaxed);
}

void CompatRemote::retry() noexcept {
  if (declined_.load(std::memory_order_relaxed) == 0) return;
  const CancellationDisabled guard;
  constexpr size_t kAtOnce = 16;
  std::array<CompatRemoteOp*, kAtOnce> due{};
  size_t n = 0;
  {
    const uint64_t now = now_ns();
    MutexLock lock(mu_);
    for (CompatRemoteOp* op = ops_; op != nullptr && n < kAtOnce; op = op->next) {
      if (op->state != CompatRemoteOp::State::kDeclined || op->retry_ns > now) continue;
      op->state = CompatRemoteOp::State::kAsked;  // no other thread tries it now
      due[n++] = op;
    }
  }
  declined_.fetch_sub(n, std::memory_order_relaxed);
  for (size_t i = 0; i < n; ++i) {
    hydrant_pin_t pin{};
    if (start(due[i], false, &pin) == GASNET_ERR_NOT_READY) {
      retry_later(due[i]);
    } else if (pin.region != nullptr) {
      done(due[i], pin, false);
    }
  }
}

void CompatRemote::room_thunk(void* user, uint32_t peer) {
  static_cast<CompatRemote*>(user)->note_room(peer);
}

// Retries the node's declined operations earlier, because it may have room; with growing pauses.
void CompatRemote::note_room(uint32_t node) noexcept {
  MutexLock lock(mu_);
  for (CompatRemoteOp* op = ops_; op != nullptr; op = op->next) {
    if (op->state != CompatRemoteOp::State::kDeclined || op->pin_request.node != node) continue;
    op->retry_ns = std::min(op->retry_ns, op->declined_ns + pause_after(op->hints++));
    op->room_notified = true;
  }
}

// Requests room notices from the nodes that have declined. If a client polls only when a message has arrived,
// they reply in any case, so that it polls again: declined operations are always under way.
void CompatRemote::await_room() noexcept {
  if (declined_.load(std::memory_order_relaxed) == 0) return;
  constexpr size_t kAtOnce = 16;
  std::array<Awaited, kAtOnce> list{};
  size_t n = 0;
  {
    MutexLock lock(mu_);
    for (const CompatRemoteOp* op = ops_; op != nullptr; op = op->next) {
      if (op->state != CompatRemoteOp::State::kDeclined ||
          (op->room_notified && !polls_on_arrival_))
        continue;
      const auto same = std::find_if(list.begin(), list.begin() + n, [&](const Awaited& of) {
        return of.node == op->pin_request.node;
      });
      if (same == list.begin() + n) {
        if (n < kAtOnce)
          list[n++] = {op->pin_request.node, op->pin_request.addr, op->pin_request.len};
      } else if (op->pin_request.len < same->len) {
        *same = {op->pin_request.node, op->pin_request.addr, op->pin_request.len};
      }
    }
  }
  const uint32_t flags = polls_on_arrival_ ? HYDRANT_REMOTE_REPLY_AT_ONCE : 0;
  for (size_t i = 0; i < n; ++i) {
    static_cast<void>(hydrant_remote_await_room(end_, list[i].node, list[i].addr, list[i].len,
                                                kCompatAccess, flags));
  }
}

// Waits for declined operations last: no step is left to the next poll, which may come late or never.
void CompatRemote::progress() noexcept {
  static_cast<void>(hydrant_remote_poll(end_));
  retry();
  await_room();
}

void CompatRemote::run_done() noexcept {
  if (!any_done_.load(std::memory_order_relaxed)) return;
  const CancellationDisabled guard;
  CompatRemoteOp* list = nullptr;
  {
    MutexLock lock(mu_);
    list = done_;
    done_ = nullptr;
    done_tail_ = &done_;
    any_done_.store(false, std::memory_order_relaxed);
  }
  while (list != nullptr) {
    CompatRemoteOp* op = list;
    list = op->next;
    const hydrant_fh_remote_request_t pin_request = op->pin_request;
    const hydrant_pin_t pin = op->pin;
    const int all_local_hit = op->all_local_hit ? 1 : 0;
    ::operator delete(op, CompatRemoteOp::kAlign);
    fh_.client.completed(&pin_request, pin, all_local_hit);
  }
}

void CompatRemote::poll() noexcept {
  progress();
  run_done();
  if (patience_ns_ != 0) look_for_waiting();
}

// Reports the peers that long pending requests wait for.
void CompatRemote::look_for_waiting() noexcept {
  const uint64_t now = now_ns();
  if (now < next_look_.load(std::memory_order_relaxed)) return;
  const CancellationDisabled guard;
  next_look_.store(now + patience_ns_ / 4, std::memory_order_relaxed);
  struct LateReply {
    uint32_t node, declined;
    uintptr_t addr;
    size_t len;
    uint64_t waited_ns;
  };
  constexpr size_t kLinesShown = 16;
  std::array<LateReply, kLinesShown> late{};
  size_t n = 0;
  {
    MutexLock lock(mu_);
    for (CompatRemoteOp* op = ops_; op != nullptr && n < kLinesShown; op = op->next) {
      if (now < op->next_report_ns || op->state == CompatRemoteOp::State::kHeld) continue;
      const uint64_t waited = now - op->began_ns;
      op->next_report_ns = now + waited;
      late[n++] = {op->pin_request.node, op->declined, op->pin_request.addr, op->pin_request.len,
                   waited};
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const LateReply& op = late[i];
    char said[96];
    if (op.declined == 0) {
      std::snprintf(said, sizeof said, "that node has not answered: does it poll?");
    } else {
      std::snprintf(said, sizeof said, "that node has no room now, as it said %u times",
                    op.declined);
    }
    log_warning(
        "firehose_remote_pin has waited %llu ms for node %u to pin [%#zx, +%zu) and goes on: %s",
        static_cast<unsigned long long>(op.waited_ns / kNsPerMs), op.node,
        static_cast<size_t>(op.addr), op.len, said);
  }
}

}  // namespace hydrant
