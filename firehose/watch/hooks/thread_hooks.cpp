// Hooks the creation of threads: a thread begins in a function of this file, because libc maps its stack past
// every symbol.
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/thread_start_slots.hpp"
#include "firehose/watch/hooks/watched_call.hpp"

#include <cerrno>

using hydrant::hooks::acquired_somewhere;
using hydrant::hooks::kAllMemory;
using hydrant::hooks::real;
using hydrant::hooks::release_thread_start;
using hydrant::hooks::releasing;
using hydrant::hooks::take_thread_start;
using hydrant::hooks::this_thread;
using hydrant::hooks::Thread;
using hydrant::hooks::ThreadStart;

namespace {

ThreadStart begin_thread(void* slot) {
  const ThreadStart start = *static_cast<ThreadStart*>(slot);
  release_thread_start(static_cast<ThreadStart*>(slot));
  Thread* record = this_thread();  // from now on libfirehose sees when the thread ends
  if (start.on_own_stack) __atomic_store_n(&record->stack, uint64_t{0}, __ATOMIC_RELEASE);
  acquired_somewhere();
  return start;
}

void* run_pthread(void* slot) {
  const ThreadStart start = begin_thread(slot);
  return start.pthread_main(start.argument);
}

int run_c11_thread(void* slot) {
  const ThreadStart start = begin_thread(slot);
  return start.c11_main(start.argument);
}

}  // namespace

namespace {

// If the attributes name no stack, pthread_attr_getstack() subtracts the size from a null address.
bool names_stack(const pthread_attr_t* attributes) {
  void* lowest = nullptr;
  size_t bytes = 0;
  return attributes != nullptr && pthread_attr_getstack(attributes, &lowest, &bytes) == 0 &&
         reinterpret_cast<uintptr_t>(lowest) + bytes != 0;
}

}  // namespace

// pthread_create() may unmap stacks of threads that have ended.
int hook_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                        void* (*start_main)(void*), void* argument) {
  ThreadStart* slot = take_thread_start();
  if (slot == nullptr) return EAGAIN;
  slot->pthread_main = start_main;
  slot->argument = argument;
  slot->on_own_stack = names_stack(attributes);
  const int result = releasing(
      kAllMemory, [&] { return real.pthread_create(thread, attributes, run_pthread, slot); });
  if (result != 0) release_thread_start(slot);
  return result;
}
HYDRANT_EXPORT_HOOK(pthread_create);

int hook_thrd_create(thrd_t* thread, thrd_start_t start_main, void* argument) {
  ThreadStart* slot = take_thread_start();
  if (slot == nullptr) return thrd_nomem;
  slot->c11_main = start_main;
  slot->argument = argument;
  slot->on_own_stack = false;
  const int result =
      releasing(kAllMemory, [&] { return real.thrd_create(thread, run_c11_thread, slot); });
  if (result != thrd_success) release_thread_start(slot);
  return result;
}
HYDRANT_EXPORT_HOOK(thrd_create);
