// Proof that the calling thread holds the mutex of a domain.
//
// The parts of a cache (region_store.hpp and its neighbours) have no mutex of their own. A method that
// needs the domain's mutex takes a `const CacheLock&`, and the private state of a part is reachable through
// such methods only. A phase of an operation takes the mutex once and passes the lock down.
//
// Invariant: the mutex is held from the construction of the lock to its destruction, except inside
// wait_until().
#pragma once

#include "firehose/base/thread.hpp"

#include <cstdint>

namespace hydrant {

class HYDRANT_SCOPED_CAPABILITY CacheLock {
 public:
  enum class Adopt { kLocked };

  explicit CacheLock(Mutex& mu) noexcept HYDRANT_ACQUIRE(mu) : mu_(mu) { mu_.lock(); }
  // Takes over a mutex that the calling thread has locked.
  CacheLock(Mutex& mu, Adopt) noexcept HYDRANT_REQUIRES(mu) : mu_(mu) {}
  ~CacheLock() HYDRANT_RELEASE() { mu_.unlock(); }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

  // Waits without the mutex; false at the deadline.
  bool wait_until(CondVar& changed, uint64_t deadline_ns) const noexcept HYDRANT_NO_TSA {
    return changed.wait_until(mu_, deadline_ns);
  }

 private:
  Mutex& mu_;
};

}  // namespace hydrant
