// Holds a SpinFlag for a scope. In the mode for one thread it takes no lock.
#pragma once

#include "rdma/spin_lock.hpp"

namespace hydrant::ibv {

class SpinGuard {
 public:
  SpinGuard(SpinFlag& flag, bool threaded) noexcept HYDRANT_NO_TSA : flag_(flag),
                                                                     threaded_(threaded) {
    if (threaded_) flag_.lock();
  }
  ~SpinGuard() HYDRANT_NO_TSA {
    if (threaded_) flag_.unlock();
  }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinFlag& flag_;
  const bool threaded_;
};

}  // namespace hydrant::ibv
