// Decides when a refused message ends the job. Called by barriers.cpp and barrier_rdma_memory.cpp.
#include "extended/message/send_failures.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/status.hpp"

#include <cstdio>

namespace hydrant {

void SendFailures::note(Rank peer, Status status, uint64_t now) noexcept {
  if (status == Status::kOk || status == Status::kNotReady) return;
  uint64_t since = 0;
  const bool is_first = since_ns_.compare_exchange_strong(since, now, std::memory_order_relaxed);
  if (status == Status::kBroken || (!is_first && now - since >= kMaxNs)) {
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
  if (message != refused_ && since_ns_.load(std::memory_order_relaxed) != 0)
    since_ns_.store(now, std::memory_order_relaxed);
  refused_ = message;
  note(peer, status, now);
}

}  // namespace hydrant
