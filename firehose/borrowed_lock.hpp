// A domain's mutex for those whom a fork may not hold up.
//
// fork() takes every domain's mutex first and libc's malloc's locks afterwards. Somebody may hold one
// of the latter and wait in the kernel for the monitor's reader, and the reader may want the former: a
// circle. But from the moment the forking thread has all the mutexes until fork has returned it touches
// nothing that they protect, so it lends them: whoever comes through this class then takes turns by
// another mutex, which is not held around the fork. The child, in whose memory such a borrower may be
// half through, builds its tables anew anyway and asks nothing of them but the state of each region,
// which is one byte.
#pragma once

#include "firehose/base/thread.hpp"

namespace hydrant {

class HYDRANT_SCOPED_CAPABILITY BorrowedLock {
 public:
  explicit BorrowedLock(Mutex& mu) noexcept HYDRANT_ACQUIRE(mu);
  ~BorrowedLock() HYDRANT_RELEASE();
  BorrowedLock(const BorrowedLock&) = delete;
  BorrowedLock& operator=(const BorrowedLock&) = delete;

  // Around fork, by who holds every domain's mutex.
  static void lend_all() noexcept;
  static void take_back() noexcept;
  static void reset_in_child() noexcept;

 private:
  Mutex& mu_;
  bool borrowed_ = false;
};

}  // namespace hydrant
