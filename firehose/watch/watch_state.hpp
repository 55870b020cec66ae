// Whether the monitor runs, and why not. It starts once in a process, and again in the child of a fork.
//
// Invariant: is_running() is true from the end of a successful start to end(). What the start has written is
// seen by a thread that sees true. After a start that failed for a shortage another is tried later; after any
// other failure, or end(), none is. reason() then holds the cause.
//
// Threads: any. The mutex is the outermost of the monitor's, held with signals blocked.
#pragma once

#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/start_gate.hpp"
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

  // Calls start(&reason) unless the monitor runs or may not start (StartGate::is_open(now)). Returns
  // is_running(). `start` returns 0, or an errno with *reason set to static text.
  template <class Start>
  bool start_once(bool now, const Start& start) noexcept HYDRANT_EXCLUDES(start_mu_) {
    if (is_running()) return true;
    if (!gate_.is_open(now)) return false;
    const SignalsBlocked blocked;
    const MutexLock lock(start_mu_);
    if (running_.load(std::memory_order_relaxed)) return true;
    if (!gate_.is_open(now)) return false;
    const char* reason = "";
    const int error = start(&reason);
    reason_.store(reason, std::memory_order_release);
    if (error != 0) gate_.note_failure(error);
    if (error == 0) running_.store(true, std::memory_order_release);
    return error == 0;
  }
  // For the reader, with signals blocked: reports have ended, or cannot be read. Closes the userfaultfd.
  void end(Userfault& userfault, const char* reason) noexcept HYDRANT_EXCLUDES(start_mu_) {
    const MutexLock lock(start_mu_);
    gate_.shut();
    reason_.store(reason, std::memory_order_release);
    userfault.close();
    running_.store(false, std::memory_order_release);
  }

  void reset_in_child() noexcept {
    start_mu_.reset_in_child();
    running_.store(false, std::memory_order_relaxed);
    gate_.reset();
  }

 private:
  Mutex start_mu_;
  std::atomic<bool> running_{false};
  StartGate gate_;  // written under start_mu_
  std::atomic<const char*> reason_{nullptr};
};

}  // namespace hydrant
