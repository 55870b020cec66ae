// Finds the memory of the main program's own variables. Initialised variables lie in a private mapping of a
// file, which the kernel does not report on. They need no reports: the program cannot be unloaded, its file
// cannot shrink while it runs, and no other process sees what it writes there.
#pragma once

#include "firehose/base/memory_range.hpp"

namespace hydrant {

// Returns .data and .bss of the main program, in pages, without the part that the loader makes read-only.
// Empty if there is none, or if it cannot be determined. Takes no lock.
MemoryRange find_static_memory() noexcept;

}  // namespace hydrant
