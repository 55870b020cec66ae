// Decides when a refused message ends the job. Called by barriers.cpp and barrier_rdma_memory.cpp.
#include "extended/message/send_failures.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/status.hpp"

#include <algorithm>
#include <cstdio>

namespace hydrant {

void SendFailures::note(Rank peer, Status status, uint64_t now) noexcept {
  if (status == Status::kOk || status == Status::kNotReady) return;
  const uint64_t last = last_ns_.exchange(now, std::memory_order_relaxed);
  const bool is_first = last == 0;
  const uint64_t passed = is_first || now < last ? 0 : std::min(now - last, kMostBetweenNs);
  const uint64_t tried = tried_ns_.fetch_add(passed, std::memory_order_relaxed) + passed;
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
  if (message != refused_ && last_ns_.load(std::memory_order_relaxed) != 0) {
    last_ns_.store(now, std::memory_order_relaxed);
    tried_ns_.store(0, std::memory_order_relaxed);
  }
  refused_ = message;
  note(peer, status, now);
}

}  // namespace hydrant
