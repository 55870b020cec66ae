// Mutex, condition variable and guard with clang's thread-safety annotations.
//
// Plain pthread objects: constant-initialised (no global constructors) and re-creatable in the child
// of a fork, where the threads that held them no longer exist.
#pragma once

#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <pthread.h>

#if defined(__clang__)
#define HYDRANT_TSA(x) __attribute__((x))
#else
#define HYDRANT_TSA(x)
#endif
#define HYDRANT_CAPABILITY(name) HYDRANT_TSA(capability(name))
#define HYDRANT_SCOPED_CAPABILITY HYDRANT_TSA(scoped_lockable)
#define HYDRANT_GUARDED_BY(mu) HYDRANT_TSA(guarded_by(mu))
#define HYDRANT_REQUIRES(mu) HYDRANT_TSA(requires_capability(mu))
#define HYDRANT_EXCLUDES(mu) HYDRANT_TSA(locks_excluded(mu))
#define HYDRANT_ACQUIRE(...) HYDRANT_TSA(acquire_capability(__VA_ARGS__))
#define HYDRANT_RELEASE(...) HYDRANT_TSA(release_capability(__VA_ARGS__))
#define HYDRANT_NO_TSA HYDRANT_TSA(no_thread_safety_analysis)

namespace hydrant {

inline uint64_t now_ns() noexcept {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

// How many mutexes this thread holds, is about to lock, or has just unlocked (fork_nesting.hpp), without
// those that lock_uncounted() locked. Initial-exec: its first use may be in a signal handler.
inline thread_local constinit uint16_t t_mutexes_held [[gnu::tls_model("initial-exec")]] = 0;

class HYDRANT_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() noexcept HYDRANT_ACQUIRE() {
    note_held(1);
    pthread_mutex_lock(&mutex_);
  }
  bool try_lock() noexcept HYDRANT_TSA(try_acquire_capability(true)) {
    note_held(1);
    if (pthread_mutex_trylock(&mutex_) == 0) return true;
    note_held(-1);
    return false;
  }
  void unlock() noexcept HYDRANT_RELEASE() {
    pthread_mutex_unlock(&mutex_);
    note_held(-1);
  }
  // For fork handlers outside of the cache: the cache's handlers do not take this for a section of the thread
  // that the fork interrupts.
  void lock_uncounted() noexcept HYDRANT_ACQUIRE() { pthread_mutex_lock(&mutex_); }
  void unlock_uncounted() noexcept HYDRANT_RELEASE() { pthread_mutex_unlock(&mutex_); }
  // Whether this thread holds any mutex. In a signal handler: the thread that it interrupted.
  static bool any_held() noexcept { return t_mutexes_held != 0; }
  // For fork handlers: the mutexes that this thread holds count no more.
  static void discount_held() noexcept { t_mutexes_held = 0; }
  // Unlocks the mutex whatever its state. Only for the single thread of a forked child.
  void reset_in_child() noexcept { mutex_ = PTHREAD_MUTEX_INITIALIZER; }

 private:
  friend class CondVar;

  // Signal handlers of this thread see the change before what follows it.
  static void note_held(int by) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    t_mutexes_held = static_cast<uint16_t>(t_mutexes_held + by);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class HYDRANT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) noexcept HYDRANT_ACQUIRE(mu) : mu_(mu) { mu_.lock(); }
  ~MutexLock() HYDRANT_RELEASE() { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

class CondVar {
 public:
  constexpr CondVar() noexcept = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void notify_all() noexcept { pthread_cond_broadcast(&cond_); }
  // Waits until notified or until now_ns() reaches deadline_ns; false at the deadline. May wake early.
  bool wait_until(Mutex& mu, uint64_t deadline_ns) noexcept HYDRANT_REQUIRES(mu) {
    timespec ts{};
    ts.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000u);
    ts.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000u);
    return uncancelled::pthread_cond_clockwait(&cond_, &mu.mutex_, CLOCK_MONOTONIC, &ts) == 0;
  }
  void reset_in_child() noexcept { cond_ = PTHREAD_COND_INITIALIZER; }

 private:
  pthread_cond_t cond_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace hydrant
