// A log of events in one order, in memory shared by two processes: the hunt (pins, invalidations) and the
// process that watches its system calls.
//
// Threads and processes: add() from any, without a lock. An event is logged before its consequences: a call
// before the kernel runs it, an invalidation before waiters continue, a pin after it was taken and before its
// owner releases the memory.
#pragma once

#include "tests/stale/hunt/cache.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::stale {

enum class Event : uint32_t {
  kNone,
  kPinned,     // a pin of memory that the cache may keep
  kForgotten,  // the release of the range was reported to the caches or by the client
  kCall,       // a system call is about to release the range
  kMaybe,      // a system call may release the range
  kUnchanged,  // the call failed, and the memory is unchanged
  kEnd,        // invalidations are no longer recorded
};

struct TraceRecord {
  std::atomic<Event> event{Event::kNone};  // written last, with release
  int32_t call = 0;                        // its number, for calls
  int32_t thread = 0;
  Range range;
};

class TraceLog {
 public:
  // Creates the log in shared memory, which forks inherit. Null if out of memory.
  static TraceLog* make(size_t most);
  static void unmake(TraceLog* log);

  void add(Event event, Range range, int32_t call = 0, int32_t thread = 0);
  size_t size() const;
  // Number of events that did not fit.
  size_t lost() const;
  const TraceRecord& at(size_t i) const { return records()[i]; }

 private:
  explicit TraceLog(size_t most) : max_(most) {}
  TraceRecord* records() { return reinterpret_cast<TraceRecord*>(this + 1); }
  const TraceRecord* records() const { return reinterpret_cast<const TraceRecord*>(this + 1); }

  const size_t max_;
  std::atomic<size_t> next_{0};
};

}  // namespace hydrant::stale
