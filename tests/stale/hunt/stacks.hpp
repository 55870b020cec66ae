// Stacks of all threads of this process or of its child, for a run without progress.
#pragma once

#include <sys/types.h>

namespace hydrant::stale {

// Call it once before threads are started: it loads everything that show_stacks() needs, and installs a
// handler that prints faults.
void prepare_stacks() noexcept;

// Has each thread of the process, this one or a forked child of it, write its stack to its stderr. What the
// kernel shows of the thread comes first, and alone of one that blocks signals. Waits at most 100 ms per
// thread; allocates nothing.
void show_stacks(pid_t process) noexcept;

}  // namespace hydrant::stale
