// Slots that carry a thread's start function and argument from pthread_create() to begin_thread() in the new
// thread, without allocating. If all slots are taken, each further thread uses a page of its own.
#pragma once

#include <cstdint>
#include <threads.h>

namespace hydrant::hooks {

struct ThreadStart {
  union {
    void* (*pthread_main)(void*);
    thrd_start_t c11_main;
  };
  void* argument;
  bool on_own_stack;  // memory of the program, which libc does not unmap
  uint64_t taken;
};

// Null where the kernel has no page. Threads: any; no lock.
ThreadStart* take_thread_start();
void release_thread_start(ThreadStart* start);

// In the child of a fork(): the threads that were starting do not exist there.
void forget_thread_starts();

}  // namespace hydrant::hooks
