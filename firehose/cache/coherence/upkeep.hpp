// A thread that undoes registrations of released memory if no miss and no poll has undone them within
// kDelayNs.
//
// It is not the monitor's reader. unpin() is the client's function: it may release memory, and such a call
// returns only when the reader has read; or it may wait for a lock whose holder sleeps in such a call. Only
// two operations wait for this thread: the end of a domain, until the thread is outside the domain; and a
// fork or the program's exit, for kMaxPauseNs at most.
//
// Invariant: when leave() has returned, the client's function is not running and is not called again.
//
// Threads: every function from any thread. wake() and wake_at_once() also in signal handlers and under an
// allocator's locks: they do not wait. start() may allocate.
#pragma once

#include "firehose/base/start_gate.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class Upkeep {
 public:
  // Does one bounded batch of work; true if there is more.
  using Work = bool (*)(void* context);
  static constexpr uint64_t kDelayNs = 50'000'000;
  static constexpr uint64_t kMaxPauseNs = 100'000'000;

  constexpr Upkeep() noexcept = default;
  Upkeep(const Upkeep&) = delete;
  Upkeep& operator=(const Upkeep&) = delete;
  // The instance of this copy of the library.
  static Upkeep& own() noexcept;

  // Starts the thread, once. False if the system has no thread; a later call tries again what a shortage has
  // prevented, at once if `now`, else at most every 100 ms. The caller holds no lock of the library.
  bool start(bool now) noexcept {
    return running_.load(std::memory_order_acquire) || start_thread(now);
  }
  // Has `work` called after each wake(). Returns an index for leave(), or -1 if all are taken.
  int enlist(Work work, void* context) noexcept;
  void leave(int index) noexcept;
  // Wakes the thread, which does the work unless a miss or a poll does it first.
  void wake() noexcept { wake(kWoken); }
  // The same without kDelayNs, for work that another thread waits for.
  void wake_at_once() noexcept { wake(kWoken | kAtOnce); }

  // Between pause() and resume() no work is done, so that a fork copies no lock that is held for it. The wait
  // for work under way has a bound: the caller may hold a lock that it needs.
  void pause() noexcept;
  void resume() noexcept { paused_.fetch_sub(1, std::memory_order_seq_cst); }
  // For the child of a fork(): the thread does not run; clients stay.
  void reset_in_child() noexcept;

#if HYDRANT_MUTANTS
  static void set_delay_ns(uint64_t ns) noexcept { delay_ns_.store(ns, std::memory_order_relaxed); }
  static void set_max_pause_ns(uint64_t ns) noexcept {
    max_pause_ns_.store(ns, std::memory_order_relaxed);
  }
#endif

 private:
  static constexpr size_t kMaxClients = 64;
  enum State : uint32_t { kFree, kBeingWritten, kUsed, kLeaving };
  struct Client {
    Work work = nullptr;
    void* context = nullptr;
    std::atomic<uint32_t> state{kFree};
    std::atomic<uint32_t> inside{0};  // set by the thread before it looks at `state` and `paused_`
  };

#if HYDRANT_MUTANTS
  static std::atomic<uint64_t> delay_ns_, max_pause_ns_;
  static uint64_t delay_ns() noexcept { return delay_ns_.load(std::memory_order_relaxed); }
  static uint64_t max_pause_ns() noexcept { return max_pause_ns_.load(std::memory_order_relaxed); }
#else
  static constexpr uint64_t delay_ns() noexcept { return kDelayNs; }
  static constexpr uint64_t max_pause_ns() noexcept { return kMaxPauseNs; }
#endif

  static constexpr uint32_t kWoken = 1;
  static constexpr uint32_t kAtOnce = 2;
  void wake(uint32_t how) noexcept;
  bool start_thread(bool now) noexcept HYDRANT_EXCLUDES(start_mu_);
  static void* thread_main(void* self);
  void wait_for_work() noexcept;
  void serve(Client& client) noexcept;
  bool is_inside() const noexcept;

  Mutex start_mu_;  // outermost: held, with signals blocked, while the thread is started
  std::atomic<bool> running_{false};
  StartGate gate_;  // written under start_mu_
  bool ends_at_exit_ HYDRANT_GUARDED_BY(start_mu_) = false;
  std::atomic<uint32_t> paused_{0};  // callers of pause()
  Client clients_[kMaxClients] = {};
  alignas(64) std::atomic<uint32_t> wakes_{0};  // kWoken, kAtOnce; the thread sleeps on it
};

}  // namespace hydrant
