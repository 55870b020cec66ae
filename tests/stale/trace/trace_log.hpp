// What happened, in one order, written by two processes: the hunt (pins, invalidations) and whoever
// watches its system calls. In memory that both map.
//
// Threads and processes: add() from any, without a lock. An event is in the log before what follows from
// it can be: a call is noted before the kernel runs it, an invalidation before whoever waits for it goes
// on, a pin after it was taken and before its owner lets the memory go.
#pragma once

#include "tests/stale/hunt/cache.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::stale {

enum class Event : uint32_t {
  kNone,
  kPinned,     // a pin of memory that the cache may keep
  kForgotten,  // the caches were told, or the client said, that the range goes away
  kCall,       // a system call is about to release the range
  kMaybe,      // it may release it, or leave it alone
  kUnchanged,  // it failed, and the memory is what it was
  kEnd,        // nothing is noted of invalidations any more
};

struct TraceRecord {
  std::atomic<Event> event{Event::kNone};  // written last, with release
  int32_t call = 0;                        // its number, for calls
  int32_t thread = 0;
  Range range;
};

class TraceLog {
 public:
  // In shared memory, which a fork passes on. Null without memory.
  static TraceLog* make(size_t most);
  static void unmake(TraceLog* log);

  void add(Event event, Range range, int32_t call = 0, int32_t thread = 0);
  size_t size() const;
  // Events that found no room.
  size_t lost() const;
  const TraceRecord& at(size_t i) const { return records()[i]; }

 private:
  explicit TraceLog(size_t most) : most_(most) {}
  TraceRecord* records() { return reinterpret_cast<TraceRecord*>(this + 1); }
  const TraceRecord* records() const { return reinterpret_cast<const TraceRecord*>(this + 1); }

  const size_t most_;
  std::atomic<size_t> next_{0};
};

}  // namespace hydrant::stale
