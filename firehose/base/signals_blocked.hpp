// Blocks signals during a rare and short critical section under a mutex: a signal handler that releases
// memory, or forks, would otherwise wait for that mutex. Costs two system calls, too much for a miss.
//
// SIGSYS stays open: a seccomp filter may send it for a system call of the section, and the kernel ends a
// process that blocks it.
#pragma once

#include <csignal>
#include <pthread.h>

namespace hydrant {

class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace hydrant
