// Decides when a refused message ends the job. Called by barriers.cpp and barrier_rdma_memory.cpp.
#include "extended/message/send_failures.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/status.hpp"

#include <algorithm>
#include <cstdio>

namespace hydrant {

void SendFailures::note(Rank peer, Status status, uint64_t now) noexcept {
  if (status == Status::kOk || status == Status::kNotReady) return;
  bool is_first = false;
  const uint64_t tried = add(now, &is_first);
  if (status == Status::kBroken || tried >= kMaxNs) {
    // Copied, because ending the job may overwrite the error text.
    char why[512];
    snprintf(why, sizeof why, "%s", last_error_text());
    callback_(peer, why);
  } else if (is_first) {
    log_warning("a message to rank %u cannot be sent: %s; trying again for %u s", peer,
                last_error_text(), static_cast<unsigned>(kMaxNs / 1'000'000'000));
  }
}

void SendFailures::note(Rank peer, Status status, uint64_t now, uint64_t message) noexcept {
  if (status == Status::kOk || status == Status::kNotReady) return;
  if (message != refused_ && has_refusal_.load(std::memory_order_relaxed)) {
    const MutexLock lock(mu_);
    last_ns_ = now;
    tried_ns_ = 0;
  }
  refused_ = message;
  note(peer, status, now);
}

// The time that counts since the first refusal. A thread may come with an older time than the last one's.
uint64_t SendFailures::add(uint64_t now, bool* is_first) noexcept {
  const MutexLock lock(mu_);
  *is_first = !has_refusal_.exchange(true, std::memory_order_relaxed);
  if (!*is_first && now > last_ns_) tried_ns_ += std::min(now - last_ns_, kMostBetweenNs);
  last_ns_ = *is_first ? now : std::max(now, last_ns_);
  return tried_ns_;
}

void SendFailures::forget() noexcept {
  const MutexLock lock(mu_);
  has_refusal_.store(false, std::memory_order_relaxed);
  tried_ns_ = 0;
}

}  // namespace hydrant
