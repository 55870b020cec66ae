// Sections F and G: what several threads do at once.
#include <gasnetex.h>

#include "extended/diagnostics/diagnostics.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <gasnet_tools.h>
#include <pthread.h>

namespace hydrant::diagnostics {
namespace {

struct Worker {
  Run* run = nullptr;
  void (*work)(Run& run, uint32_t thread) noexcept = nullptr;
  uint32_t thread = 0;
  pthread_t handle = {};
  bool is_started = false;
};

void* run_worker(void* argument) noexcept {
  auto& worker = *static_cast<Worker*>(argument);
  worker.work(*worker.run, worker.thread);
  return nullptr;
}

// The calling thread is the first.
void run_in_threads(Run& run, void (*work)(Run& run, uint32_t thread) noexcept) noexcept {
  Worker workers[kMaxThreads];
  for (uint32_t i = 1; i < run.threads; ++i) {
    workers[i] = {.run = &run, .work = work, .thread = i};
    const int error = create_thread_without_signals(&workers[i].handle, run_worker, &workers[i]);
    workers[i].is_started = run.expect(error == 0, "cannot create a thread: error %d", error);
  }
  work(run, 0);
  for (Worker& worker : workers) {
    if (worker.is_started) uncancelled::pthread_join(worker.handle, nullptr);
  }
}

// Numbers that only locks protect, and numbers that need none.
struct Shared {
  gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
  gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;
  uint64_t by_mutex = 0;
  uint64_t by_rwlock[2] = {};
  gasnett_atomic_t atomic = gasnett_atomic_init(0);
  gasnett_atomic64_t swapped = gasnett_atomic64_init(0);
};
Shared shared;

void use_locks(Run& run, uint32_t) noexcept {
  for (uint32_t round = 0; round < run.rounds; ++round) {
    gasnett_mutex_lock(&shared.mutex);
    ++shared.by_mutex;
    gasnett_mutex_unlock(&shared.mutex);
    gasnett_rwlock_wrlock(&shared.rwlock);
    ++shared.by_rwlock[0];
    ++shared.by_rwlock[1];
    gasnett_rwlock_unlock(&shared.rwlock);
    gasnett_rwlock_rdlock(&shared.rwlock);
    run.expect(shared.by_rwlock[0] == shared.by_rwlock[1], "a reader saw a writer's work");
    gasnett_rwlock_unlock(&shared.rwlock);
    gasnett_atomic_increment(&shared.atomic, 0);
    for (bool is_done = false; !is_done;) {
      const uint64_t before = gasnett_atomic64_read(&shared.swapped, 0);
      is_done = gasnett_atomic64_compare_and_swap(&shared.swapped, before, before + 1, 0) != 0;
    }
  }
}

void talk(Run& run, uint32_t thread) noexcept {
  const Part part = part_of(run, thread, run.threads);
  const uint32_t rounds = std::max(run.rounds / run.threads, 1u);
  exchange_mediums(run, part, rounds);
  check_transfers(run, part, rounds);
  exchange_longs(run, part, rounds);
}

}  // namespace

void check_locks(Run& run) noexcept {
  shared.by_mutex = shared.by_rwlock[0] = shared.by_rwlock[1] = 0;
  gasnett_atomic_set(&shared.atomic, 0, 0);
  gasnett_atomic64_set(&shared.swapped, 0, 0);
  run_in_threads(run, use_locks);
  const uint64_t wanted = uint64_t{run.rounds} * run.threads;
  run.expect(shared.by_mutex == wanted, "a mutex lost increments");
  run.expect(shared.by_rwlock[0] == wanted, "a reader-writer lock lost increments");
  run.expect(gasnett_atomic_read(&shared.atomic, 0) == static_cast<gasnett_atomic_val_t>(wanted),
             "an atomic lost increments");
  run.expect(gasnett_atomic64_read(&shared.swapped, 0) == wanted,
             "a compare-and-swap lost increments");
}

void check_threads(Run& run) noexcept { run_in_threads(run, talk); }

}  // namespace hydrant::diagnostics
