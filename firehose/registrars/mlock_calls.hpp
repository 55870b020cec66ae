// The system calls of the mlock registrar as a table, so that a test can make each of them fail.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/mapping_query.hpp"

#include <cstdint>

namespace hydrant {

// Every call returns 0 or a positive errno. Any thread.
struct MlockCalls {
  // Locks the mapped memory of `range`. With `on_fault` (Linux 4.4) pages are locked when they become
  // resident, and none is brought in. Otherwise all pages are resident when the call returns.
  int (*lock)(MemoryRange range, bool on_fault) noexcept;
  int (*unlock)(MemoryRange range) noexcept;
  // Makes `range` resident, locked or not (Linux 5.14). EINVAL if the mapping forbids reading, or forbids
  // writing and `writing` is set.
  int (*populate)(MemoryRange range, bool writing) noexcept;
  // Calls each(context, run) for the mapped parts of `range` in address order, adjacent ones joined. Returns
  // an errno if the kernel cannot be queried.
  int (*mapped)(MemoryRange range, MappedRun each, void* context) noexcept;
  // EBUSY if any page of `range` is locked; another errno, or 0, if none is. Changes nothing. Cost: linear in
  // the mappings that it meets before a locked one; 0.3 us for a single one of any length.
  int (*find_lock)(MemoryRange range) noexcept;
  // The mapping that contains addr. An errno if there is none, or if the kernel lacks the query (before
  // Linux 6.11). Cost: 1 us.
  int (*mapping)(uintptr_t addr, MemoryRange* out) noexcept;
};

// The table of real system calls.
extern const MlockCalls kMlockCalls;

}  // namespace hydrant
