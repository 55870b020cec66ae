// The system calls beneath the mlock registrar, as a table, so that a test can fail each of them.
#pragma once

#include "firehose/base/memory_range.hpp"

namespace hydrant {

// Every call answers 0 or a positive errno. Any thread.
struct MlockCalls {
  // Locks what is mapped in `range`. `on_fault` (Linux 4.4): what is not resident is locked when it comes,
  // and nothing is brought in; else all of it is made resident before the call returns.
  int (*lock)(MemoryRange range, bool on_fault) noexcept;
  int (*unlock)(MemoryRange range) noexcept;
  // Makes `range` resident, locked or not (Linux 5.14). EINVAL where the mapping does not allow reading, or
  // writing if `writing`.
  int (*populate)(MemoryRange range, bool writing) noexcept;
};

// The kernel's.
extern const MlockCalls kMlockCalls;

}  // namespace hydrant
