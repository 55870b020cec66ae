// Collects trace records of all threads of the process: a ring per thread, and a thread of its own that
// passes the records to a sink every 50 ms, or earlier when a ring is half full.
//
// A thread writes to its own ring and takes no lock. If its ring is full, it drains the ring itself, so
// that no record is lost. A record is dropped, and counted, only when there is no memory for a ring, when a
// signal handler traces inside a trace call, or when another thread drains for a second.
//
// Threads: trace() and current() from any thread; start_tracing() and stop_tracing() from one.
// Fork: the child does not trace. Cost of trace(): about 10 ns, without the clock.
#pragma once

#include "firehose/base/trace/trace_clock.hpp"
#include "firehose/base/trace/trace_record.hpp"
#include "firehose/base/trace/trace_ring.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

extern constinit std::atomic<bool> g_is_tracing;
// Cost: a load; callers branch on it where no other branch keeps untraced calls away.
inline bool is_tracing() noexcept { return g_is_tracing.load(std::memory_order_relaxed); }

// A public call that its thread is inside.
struct TraceFrame {
  uint64_t start = 0;
  const char* name = nullptr;
  const char* path = nullptr;  // of its put or get; null: none yet
  uint64_t bytes = 0;
  uint32_t peer = kNoTracePeer;
  uint64_t position = 0;  // of the thread's ring at the start
};

// A thread's part of the trace. A later thread adopts it when the thread ends.
struct TraceThread {
  static constexpr uint32_t kRecords = 8192;
  static constexpr uint32_t kFrames = 16;

  TraceRing<kRecords> ring;
  uint32_t number = 0;     // of the thread in this process, from 1
  bool is_inside = false;  // the thread is in trace(); seen by its signal handlers
  uint32_t depth = 0;      // of calls; those beyond kFrames are not recorded
  TraceFrame frames[kFrames];
  // Polls without an event, one after the other: one record for all of them (number: how many).
  TraceRecord polls;
  // The name of a call that was classified last, and its letter.
  const char* known_call = nullptr;
  char known_letter = 0;
  uint32_t frozen_source_line = 0;  // number of nested freezes
  const char* source_file = nullptr;
  uint32_t source_line = 0;
  // Used by the consumer: the line of the records that follow.
  const char* drained_file = nullptr;
  uint32_t drained_line = 0;
  TraceThread* next_of_all = nullptr;
  TraceThread* next_orphan = nullptr;
};

// Receives records. The tracer calls one function at a time, in any thread.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void take(const TraceRecord& record, const TraceThread& thread,
                    const TraceClock& clock) noexcept = 0;
  // All records that were published are taken.
  virtual void flush() noexcept = 0;
};

struct TraceOptions {
  bool tsc_is_steady = false;
  bool is_flushed = false;  // each record reaches the sink, and is flushed, before trace() returns
};

// Starts. `sink` must outlive the process. Errors: none; without a thread of its own (logged) threads drain
// their rings when they are full. No effect if tracing has started.
void start_tracing(TraceSink& sink, const TraceOptions& options) noexcept;
// Ends tracing: passes what is left to the sink, then calls last(user). From then on no thread calls the
// sink. False: another thread was draining for a second, so that records were left behind. It may go on,
// and last() is not called.
bool stop_tracing(void (*last)(void* user) noexcept = nullptr, void* user = nullptr) noexcept;

// Writes a record. Requires: is_tracing() was true. Frees a kText record's text if it is dropped.
void trace(const TraceRecord& record) noexcept;
// The same for a caller that has current_trace_thread() already; null counts the record as dropped.
void trace(TraceThread* thread, const TraceRecord& record) noexcept;
// The calling thread's part; null if there is no memory.
TraceThread* current_trace_thread() noexcept;

// Passes the published records of all threads to the sink, then calls change(user), before which no record is
// taken that is published later. No effect once tracing has stopped. False: another thread was draining for
// a second; change() is not called.
bool drain_traces(void (*change)(void* user) noexcept = nullptr, void* user = nullptr) noexcept;

// Records dropped since start_tracing().
uint64_t dropped_traces() noexcept;
// Every drain changes it: for the functions that the tracer calls, and after stop_tracing().
const TraceClock& trace_clock() noexcept;

}  // namespace hydrant
