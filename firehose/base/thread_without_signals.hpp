// Creates threads of the library, which block all signals: the client's threads handle them.
#pragma once

#include <csignal>
#include <pthread.h>

namespace hydrant {

// As pthread_create(): 0, or an errno. The thread inherits a mask that blocks all signals.
inline int create_thread_without_signals(pthread_t* thread, void* (*run)(void*),
                                         void* argument) noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(thread, nullptr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace hydrant
