// Handles failed sends of messages that the library itself initiates, where no call could return an error.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class SendFailures {
 public:
  // `callback` must end the job.
  explicit constexpr SendFailures(Transport::PeerFailedFn callback) noexcept
      : callback_(callback) {}

  // Notes that the transport refused a message to `peer` at `now` (now_ns()); last_error_text() is the
  // reason. kNotReady does not count. The first refusal logs a warning. A permanent one (kBroken), or
  // one after kMaxNs without a success, calls `callback`. A rank that computes or is stopped tries nothing
  // meanwhile, so of the time between two refusals kMostBetweenNs count at most. Any thread.
  void note(Rank peer, Status status, uint64_t now) noexcept;
  // Notes a failure of `message`, which other ranks may send as well: kMaxNs begin anew if it differs from
  // the one that was refused last, because that has been sent then. One thread at a time.
  void note(Rank peer, Status status, uint64_t now, uint64_t message) noexcept;
  // Notes a successful send. Cost: one load, except after a failure.
  void note_success() noexcept {
    if (has_refusal_.load(std::memory_order_relaxed)) [[unlikely]]
      forget();
  }

  // Retry limit: by then other puts and gets may have released memory and queue entries.
  static constexpr uint64_t kMaxNs = 30'000'000'000;
  static constexpr uint64_t kMostBetweenNs = kMaxNs / 3;

 private:
  uint64_t add(uint64_t now, bool* is_first) noexcept HYDRANT_EXCLUDES(mu_);
  [[gnu::cold]] void forget() noexcept HYDRANT_EXCLUDES(mu_);

  const Transport::PeerFailedFn callback_;
  std::atomic<bool> has_refusal_{false};  // since the last success; written under the lock
  Mutex mu_;
  uint64_t last_ns_ HYDRANT_GUARDED_BY(mu_) = 0;   // the last refusal
  uint64_t tried_ns_ HYDRANT_GUARDED_BY(mu_) = 0;  // how much has counted since the first
  uint64_t refused_ = 0;                           // the message of the last refusal that names one
};

}  // namespace hydrant
