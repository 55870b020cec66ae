// Whether the monitor runs, and why not. It starts once in a process, and again in the child of a fork.
//
// Invariant: is_running() is true from the end of a successful start to end(). What the start has written is
// seen by a thread that sees true. After a failed start, or end(), no start is tried again; reason() then
// holds the cause.
//
// Threads: any. The mutex is the outermost of the monitor's, held with signals blocked.
#pragma once

#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>

namespace hydrant {

class WatchState {
 public:
  constexpr WatchState() noexcept = default;
  WatchState(const WatchState&) = delete;
  WatchState& operator=(const WatchState&) = delete;

  bool is_running() const noexcept { return running_.load(std::memory_order_acquire); }
  // Static text; empty while there is no cause.
  const char* reason() const noexcept {
    const char* reason = reason_.load(std::memory_order_acquire);
    return reason != nullptr ? reason : "";
  }

  // Calls start(&reason) unless the monitor runs or may not start again. Returns is_running(). `start`
  // returns false with *reason set to static text if it fails.
  template <class Start>
  bool start_once(const Start& start) noexcept HYDRANT_EXCLUDES(start_mu_) {
    if (is_running()) return true;
    if (refused_.load(std::memory_order_acquire)) return false;
    const SignalsBlocked blocked;
    const MutexLock lock(start_mu_);
    if (running_.load(std::memory_order_relaxed)) return true;
    if (refused_) return false;
    const char* reason = "";
    const bool is_started = start(&reason);
    reason_.store(reason, std::memory_order_release);
    (is_started ? running_ : refused_).store(true, std::memory_order_release);
    return is_started;
  }
  // For the reader, with signals blocked: the program has closed the userfaultfd, whose number is abandoned.
  void end(Userfault& userfault, const char* reason) noexcept HYDRANT_EXCLUDES(start_mu_) {
    const MutexLock lock(start_mu_);
    refused_ = true;
    reason_.store(reason, std::memory_order_release);
    userfault.abandon();
    running_.store(false, std::memory_order_release);
  }

  void reset_in_child() noexcept {
    start_mu_.reset_in_child();
    running_.store(false, std::memory_order_relaxed);
    refused_.store(false, std::memory_order_relaxed);
  }

 private:
  Mutex start_mu_;
  std::atomic<bool> running_{false};
  std::atomic<bool> refused_{false};  // written under start_mu_
  std::atomic<const char*> reason_{nullptr};
};

}  // namespace hydrant
