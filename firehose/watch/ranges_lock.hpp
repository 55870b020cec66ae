// Proof that the calling thread holds the mutex of the watched ranges (watched_ranges.hpp).
//
// Methods of the monitor's parts that need the mutex take a `const RangesLock&`, as parts of a cache take a
// CacheLock (docs/decisions/0038-cache-parts.md).
//
// Invariant: the mutex is held from the construction of the lock to its destruction.
#pragma once

#include "firehose/base/thread.hpp"

namespace hydrant {

class HYDRANT_SCOPED_CAPABILITY RangesLock {
 public:
  enum class Adopt { kLocked };

  explicit RangesLock(Mutex& mu) noexcept HYDRANT_ACQUIRE(mu) : mu_(mu) { mu_.lock(); }
  // Takes over a mutex that the calling thread has locked, as lock_briefly() does.
  RangesLock(Mutex& mu, Adopt) noexcept HYDRANT_REQUIRES(mu) : mu_(mu) {}
  ~RangesLock() HYDRANT_RELEASE() { mu_.unlock(); }
  RangesLock(const RangesLock&) = delete;
  RangesLock& operator=(const RangesLock&) = delete;

 private:
  Mutex& mu_;
};

}  // namespace hydrant
