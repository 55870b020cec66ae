// What a new thread is to run, from pthread_create() to the thread's first instruction of ours, without
// allocating: some slots here, and a page of its own for each that does not fit.
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

// In the child of a fork(): whoever was starting does not exist here.
void forget_thread_starts();

}  // namespace hydrant::hooks
