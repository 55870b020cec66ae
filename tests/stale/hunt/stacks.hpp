// Stacks of all threads of this process, for a run without progress.
#pragma once

namespace hydrant::stale {

// Call it once before threads are started: it loads everything that show_stacks() needs, and installs a
// handler that prints faults.
void prepare_stacks() noexcept;

// Writes each thread's stack to stderr, or the system call of a thread that blocks signals. Waits at most 100
// ms per thread; allocates nothing.
void show_stacks() noexcept;

}  // namespace hydrant::stale
