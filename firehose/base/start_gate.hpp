// Decides when a start that has failed may be tried again: after a shortage every 100 ms, which costs little
// beside what asks for it; after any other failure never.
//
// Threads: any; the start itself needs a mutex. Relaxed: a thread that reads an older value tries once more,
// or later.
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace hydrant {

// True for an errno that another attempt may not meet, once others have given something back.
constexpr bool is_shortage(int error) noexcept {
  return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOMEM;
}
// True for one that a repetition of the same system call may not meet.
constexpr bool may_pass(int error) noexcept { return error == EINTR || is_shortage(error); }

class StartGate {
 public:
  static constexpr uint64_t kRetryNs = 100'000'000;

  constexpr StartGate() noexcept = default;
  // `now`: what asks is rare, such as the creation of a domain, and does not wait for the 100 ms.
  // Cost: a load; after a shortage a look at the clock.
  bool is_open(bool now) const noexcept {
    const uint64_t opens_ns = opens_ns_.load(std::memory_order_relaxed);
    return opens_ns == 0 || (opens_ns != kNever && (now || now_ns() >= opens_ns));
  }
  void note_failure(int error) noexcept {
    opens_ns_.store(is_shortage(error) ? now_ns() + kRetryNs : kNever, std::memory_order_relaxed);
  }
  void shut() noexcept { opens_ns_.store(kNever, std::memory_order_relaxed); }
  void reset() noexcept { opens_ns_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  std::atomic<uint64_t> opens_ns_{0};
};

}  // namespace hydrant
