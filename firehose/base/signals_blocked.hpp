// Blocks signals during a rare and short critical section under a mutex: a signal handler that releases
// memory would otherwise wait for that mutex. Costs two system calls, too much for a miss.
#pragma once

#include <csignal>
#include <pthread.h>

namespace hydrant {

class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace hydrant
