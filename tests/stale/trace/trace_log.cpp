// The lock-free log in shared memory that hunt and watcher write.
#include "tests/stale/trace/trace_log.hpp"

#include <algorithm>
#include <new>
#include <sys/mman.h>

namespace hydrant::stale {

TraceLog* TraceLog::make(size_t most) {
  void* memory = mmap(nullptr, sizeof(TraceLog) + most * sizeof(TraceRecord),
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  // Zero-filled records are empty.
  return memory == MAP_FAILED ? nullptr : new (memory) TraceLog(most);
}

void TraceLog::unmake(TraceLog* log) {
  munmap(log, sizeof(TraceLog) + log->max_ * sizeof(TraceRecord));
}

void TraceLog::add(Event event, Range range, int32_t call, int32_t thread) {
  const size_t i = next_.fetch_add(1);
  if (i >= max_) return;
  TraceRecord& record = records()[i];
  record.call = call;
  record.thread = thread;
  record.range = range;
  record.event.store(event, std::memory_order_release);
}

size_t TraceLog::size() const { return std::min(next_.load(), max_); }
size_t TraceLog::lost() const { return next_.load() - size(); }

}  // namespace hydrant::stale
