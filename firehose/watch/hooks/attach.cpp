// Exports the object that libfirehose finds the hooks by, and prepares the hooks when the library is loaded.
//
// The hooks also work before that: other libraries' constructors and the loader may call them earlier. Such
// calls find the real functions and take their thread's record themselves.
#include "firehose/watch/hooks/hook_families.hpp"
#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/thread_records.hpp"
#include "firehose/watch/hooks/thread_start_slots.hpp"

#include <pthread.h>

namespace {

// Runs in the child of a fork(), whose only thread calls it.
void child_begins() {
  hydrant::hooks::keep_only_own_record();
  hydrant::hooks::forget_thread_starts();
}

__attribute__((constructor)) void attach() {
  const hydrant::hooks::ErrnoGuard keep;
  hydrant::hooks::resolve_real_calls();
  pthread_atfork(nullptr, nullptr, child_begins);
  auto& object = hydrant::hooks::hydrant_hooks_object;
  object.families = hydrant::hooks::working_families(&object.malloc_fault);
}

}  // namespace

extern "C" {
hydrant_hooks_t hydrant_hooks_object = {
    .size = sizeof(hydrant_hooks_t),
    .version = HYDRANT_HOOKS_VERSION,
    .families = 0,
    .threads = hydrant::hooks::records,
    .thread_count = 0,
    .overflowed = 0,
    .heap_blocks = hydrant::hooks::heap_blocks,
    .monitor = nullptr,
    .libc_blocks = hydrant::hooks::libc_blocks,
    .main_heap_low = &hydrant::hooks::libc_heap.low,
    .main_heap_high = &hydrant::hooks::libc_heap.high,
    .ended_stacks = hydrant::hooks::ended_stacks,
    .ended_stack_count = hydrant::hooks::kEndedStacks,
    .endings = 0,
    .endings_over = 0,
    .reserved = 0,
    .malloc_fault = nullptr,
};
extern __typeof__(hydrant_hooks_object) hydrant_hooks_1
    __attribute__((alias("hydrant_hooks_object"), visibility("default")));
}
