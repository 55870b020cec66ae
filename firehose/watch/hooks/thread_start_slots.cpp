// Allocates, without a lock, the slots that carry a thread's start function and argument. thread_hooks.cpp
// takes one at pthread_create() and releases it in the new thread.
#include "firehose/watch/hooks/thread_start_slots.hpp"

#include "firehose/watch/hooks/hooks_object.hpp"

namespace hydrant::hooks {
namespace {

// guess: only a program that starts hundreds of threads at once has as many that have not run yet
constexpr uint32_t kSlots = 256;

constinit ThreadStart slots[kSlots] = {};
constinit uint32_t next_slot = 0;  // a hint

}  // namespace

ThreadStart* take_thread_start() {
  const uint32_t first = __atomic_fetch_add(&next_slot, 1, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < kSlots; ++i) {
    ThreadStart& slot = slots[(first + i) % kSlots];
    uint64_t free = 0;
    if (__atomic_compare_exchange_n(&slot.taken, &free, uint64_t{1}, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
      return &slot;
    }
  }
  return static_cast<ThreadStart*>(take_private_page());
}

void release_thread_start(ThreadStart* start) {
  if (start >= slots && start < slots + kSlots) {
    __atomic_store_n(&start->taken, uint64_t{0}, __ATOMIC_RELEASE);
  } else {
    drop_private_page(start);
  }
}

void forget_thread_starts() {
  for (ThreadStart& slot : slots) slot.taken = 0;
}

}  // namespace hydrant::hooks
