// Where the main program's own variables lie. What is initialised there is a private mapping of a file, which
// the kernel does not report on; but nobody can unload the program, shrink its file while it runs, or see
// what it writes there.
#pragma once

#include "firehose/base/memory_range.hpp"

namespace hydrant {

// .data and .bss of the main program, in pages; without what the loader makes read-only. Empty if there is
// none, or this cannot be told. Takes no lock.
MemoryRange find_static_memory() noexcept;

}  // namespace hydrant
