// What the library sends of its own accord and cannot be sent: no call could answer an error.
#pragma once

#include "rdma/transport.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class Refusals {
 public:
  // `lost` is to end the job.
  explicit constexpr Refusals(Transport::Lost lost) noexcept : lost_(lost) {}

  // A message to `peer` has been refused at `now` (now_ns()); last_error_text() says why. kNotReady is no
  // refusal. The first one is a warning; one for good (kBroken), or after kMostNs without a success, is told
  // to `lost`. Any thread.
  void note(Rank peer, Status status, uint64_t now) noexcept;
  // Something was sent. Reads one word of its own.
  void note_success() noexcept {
    if (since_ns_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      since_ns_.store(0, std::memory_order_relaxed);
  }

  // Other puts and gets may give memory and places back until then.
  static constexpr uint64_t kMostNs = 30'000'000'000;

 private:
  const Transport::Lost lost_;
  std::atomic<uint64_t> since_ns_{0};  // 0: nothing is refused
};

}  // namespace hydrant
