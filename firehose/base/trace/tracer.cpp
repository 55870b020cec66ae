// The rings of all threads, and the thread that drains them. Producers write in trace(); consumers hold the
// state's mutex.
#include "firehose/base/trace/tracer.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

namespace hydrant {

constinit std::atomic<bool> g_is_tracing{false};

namespace {

constexpr uint64_t kPauseNs = 50'000'000;
constexpr uint64_t kPatienceNs = 1'000'000'000;
constexpr uint32_t kHalf = TraceThread::kRecords / 2;

struct State {
  Mutex mu;  // held by the consumer
  CondVar wake;
  TraceSink* sink HYDRANT_GUARDED_BY(mu) = nullptr;
  TraceClock clock HYDRANT_GUARDED_BY(mu);
  // Threads are added in front and never removed, so a consumer may follow the list while it grows.
  std::atomic<TraceThread*> all{nullptr};
  TraceThread* orphans HYDRANT_GUARDED_BY(mu) = nullptr;
  std::atomic<uint32_t> threads{0};
  std::atomic<uint64_t> dropped{0};
  std::atomic<bool> is_half_full{false};
  bool is_flushed = false;
  bool is_stopping HYDRANT_GUARDED_BY(mu) = false;
  bool has_thread = false;
  pthread_t thread = {};
  pthread_key_t key = 0;
  bool has_key = false;
};
constinit State g_state;

// The value of a thread's key if there was no memory for its ring.
constinit char g_no_memory = 0;

void drop(const TraceRecord& record) noexcept {
  if (record.kind == TraceKind::kText) std::free(const_cast<char*>(record.detail));
  g_state.dropped.fetch_add(1, std::memory_order_relaxed);
}

void drain_locked(TraceThread& thread) noexcept HYDRANT_REQUIRES(g_state.mu) {
  thread.ring.drain([&](const TraceRecord& record) HYDRANT_NO_TSA {
    if (record.kind == TraceKind::kSourceLine) {
      thread.drained_file = record.name;
      thread.drained_line = static_cast<uint32_t>(record.number);
      return;
    }
    g_state.sink->take(record, thread, g_state.clock);
    if (record.kind == TraceKind::kText) std::free(const_cast<char*>(record.detail));
  });
}

void drain_all_locked() noexcept HYDRANT_REQUIRES(g_state.mu) {
  if (g_state.sink == nullptr) return;
  g_state.clock.anchor();
  for (TraceThread* thread = g_state.all.load(std::memory_order_acquire); thread != nullptr;
       thread = thread->next_of_all)
    drain_locked(*thread);
  g_state.sink->flush();
}

// Not lock(): the calling thread may hold the mutex, if this is a signal handler that interrupted a drain.
bool lock_patiently() noexcept HYDRANT_TSA(try_acquire_capability(true, g_state.mu)) {
  const uint64_t deadline = now_ns() + kPatienceNs;
  while (!g_state.mu.try_lock()) {
    if (now_ns() > deadline) return false;
    uncancelled::sleep_ns(20'000);
  }
  return true;
}

void* run_drains(void*) {
  pthread_setname_np(pthread_self(), "hydrant-trace");
  g_state.mu.lock();
  while (!g_state.is_stopping) {
    (void)g_state.wake.wait_until(g_state.mu, now_ns() + kPauseNs);
    g_state.is_half_full.store(false, std::memory_order_relaxed);
    if (is_tracing()) drain_all_locked();
  }
  g_state.mu.unlock();
  return nullptr;
}

// A thread ends. Its records are drained at once, because the next thread that adopts the ring has another
// number.
void leave(void* ended) {
  if (ended == &g_no_memory) return;
  auto* thread = static_cast<TraceThread*>(ended);
  const CancellationDisabled guard;
  const MutexLock lock(g_state.mu);
  if (is_tracing()) {
    g_state.clock.anchor();
    drain_locked(*thread);
    if (thread->polls.number != 0) g_state.sink->take(thread->polls, *thread, g_state.clock);
  }
  thread->polls.number = 0;
  thread->depth = 0;
  thread->frozen_source_line = 0;
  thread->source_file = thread->drained_file = nullptr;
  thread->next_orphan = g_state.orphans;
  g_state.orphans = thread;
}

TraceThread* adopt() noexcept {
  {
    const MutexLock lock(g_state.mu);
    TraceThread* orphan = g_state.orphans;
    if (orphan != nullptr) {
      g_state.orphans = orphan->next_orphan;
      return orphan;
    }
  }
  // Populated: a page fault would cost more than the event. Plain mmap(), because events happen inside
  // malloc's callers, with locks of the client held.
  void* memory = mmap(nullptr, sizeof(TraceThread), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* thread = new (memory) TraceThread;
  thread->next_of_all = g_state.all.load(std::memory_order_relaxed);
  while (!g_state.all.compare_exchange_weak(thread->next_of_all, thread, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
  return thread;
}

[[gnu::noinline, gnu::cold]] TraceThread* make_current() noexcept {
  if (!g_state.has_key) return nullptr;
  const CancellationDisabled guard;
  TraceThread* thread = adopt();
  if (thread == nullptr) {
    static constinit std::atomic<bool> is_said{false};
    if (!is_said.exchange(true))
      log_warning("trace: no memory for the events of a thread: %s; they are counted and dropped",
                  errno_text(ENOMEM));
    (void)pthread_setspecific(g_state.key, &g_no_memory);
    return nullptr;
  }
  thread->number = g_state.threads.fetch_add(1, std::memory_order_relaxed) + 1;
  if (pthread_setspecific(g_state.key, thread) != 0) {
    const MutexLock lock(g_state.mu);
    thread->next_orphan = g_state.orphans;
    g_state.orphans = thread;
    return nullptr;
  }
  return thread;
}

// Drains the calling thread's ring, which is full. Another consumer may make room meanwhile.
[[gnu::noinline, gnu::cold]] bool make_room(TraceThread& thread) noexcept {
  const CancellationDisabled guard;
  const uint64_t deadline = now_ns() + kPatienceNs;
  while (thread.ring.used() == TraceThread::kRecords) {
    if (g_state.mu.try_lock()) {
      if (is_tracing()) {
        g_state.clock.anchor();
        drain_locked(thread);
      }
      g_state.mu.unlock();
      return is_tracing();
    }
    if (now_ns() > deadline) return false;
    sched_yield();
  }
  return true;
}

void after_fork_in_child() noexcept HYDRANT_NO_TSA {
  // Other threads and what they wrote belong to the parent.
  g_is_tracing.store(false, std::memory_order_relaxed);
  g_state.mu.reset_in_child();
  g_state.wake.reset_in_child();
  g_state.orphans = nullptr;  // possibly in the middle of a change
  g_state.has_thread = false;
}

void start_thread() noexcept {
  const SignalsBlocked guard;
  const int error = pthread_create(&g_state.thread, nullptr, run_drains, nullptr);
  g_state.has_thread = error == 0;
  if (error != 0)
    log_warning(
        "trace: no thread that writes events: %s; each thread writes its own when 8192 are kept",
        errno_text(error));
}

}  // namespace

void start_tracing(TraceSink& sink, const TraceOptions& options) noexcept {
  if (is_tracing()) return;
  if (!g_state.has_key) {
    if (pthread_key_create(&g_state.key, leave) != 0) {
      log_warning("trace: the process has no key for thread-specific data left; there is no trace");
      return;
    }
    g_state.has_key = true;
    (void)pthread_atfork(nullptr, nullptr, after_fork_in_child);
  }
  {
    const MutexLock lock(g_state.mu);
    g_state.sink = &sink;
    g_state.is_stopping = false;
    g_state.is_flushed = options.is_flushed;
    g_state.dropped.store(0, std::memory_order_relaxed);
    g_state.clock.start(options.tsc_is_steady);
  }
  g_is_tracing.store(true, std::memory_order_release);
  if (!options.is_flushed) start_thread();
}

bool stop_tracing(void (*last)(void* user) noexcept, void* user) noexcept {
  if (!is_tracing()) return true;
  const CancellationDisabled guard;
  if (!lock_patiently()) {
    g_is_tracing.store(false, std::memory_order_relaxed);
    return false;
  }
  drain_all_locked();
  g_is_tracing.store(false, std::memory_order_relaxed);
  g_state.is_stopping = true;
  if (last != nullptr) last(user);
  g_state.mu.unlock();
  g_state.wake.notify_all();
  if (g_state.has_thread) uncancelled::pthread_join(g_state.thread, nullptr);
  g_state.has_thread = false;
  return true;
}

TraceThread* current_trace_thread() noexcept {
  if (!g_state.has_key) [[unlikely]]
    return nullptr;
  void* value = pthread_getspecific(g_state.key);
  if (value == nullptr) [[unlikely]]
    return make_current();
  return value == &g_no_memory ? nullptr : static_cast<TraceThread*>(value);
}

void trace(const TraceRecord& record) noexcept { trace(current_trace_thread(), record); }

void trace(TraceThread* thread, const TraceRecord& record) noexcept {
  if (thread == nullptr || thread->is_inside) [[unlikely]]
    return drop(record);
  thread->is_inside = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  bool is_kept = thread->ring.push(record);
  if (!is_kept) [[unlikely]]
    is_kept = make_room(*thread) && thread->ring.push(record);
  if (g_state.is_flushed) [[unlikely]]
    (void)drain_traces();
  // Checked in one of 1024 records: the load takes the consumer's line.
  if ((thread->ring.position() & 1023) == 0 && thread->ring.used() >= kHalf) [[unlikely]] {
    if (!g_state.is_half_full.exchange(true, std::memory_order_relaxed)) g_state.wake.notify_all();
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  thread->is_inside = false;
  if (!is_kept) [[unlikely]]
    drop(record);
}

bool drain_traces(void (*change)(void* user) noexcept, void* user) noexcept {
  if (!is_tracing()) return true;
  const CancellationDisabled guard;
  if (!lock_patiently()) return false;
  // Checked again: tracing may have stopped while this thread waited.
  if (is_tracing()) {
    drain_all_locked();
    if (change != nullptr) change(user);
  }
  g_state.mu.unlock();
  return true;
}

uint64_t dropped_traces() noexcept { return g_state.dropped.load(std::memory_order_relaxed); }

const TraceClock& trace_clock() noexcept HYDRANT_NO_TSA { return g_state.clock; }

}  // namespace hydrant
