// Holds a SpinLock for a scope. In single-threaded mode it takes no lock.
#pragma once

#include "rdma/transport/spin_lock.hpp"

namespace hydrant::ibv {

class SpinGuard {
 public:
  SpinGuard(SpinLock& lock, bool threaded) noexcept HYDRANT_NO_TSA : lock_(lock),
                                                                     threaded_(threaded) {
    if (threaded_) lock_.lock();
  }
  ~SpinGuard() HYDRANT_NO_TSA {
    if (threaded_) lock_.unlock();
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
  const bool threaded_;
};

}  // namespace hydrant::ibv
