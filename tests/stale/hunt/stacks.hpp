// Where every thread of this process is, for a run that stands still.
#pragma once

namespace hydrant::stale {

// Called once before there are threads: what show_stacks() needs is loaded then. From then on a
// fault is shown, too.
void prepare_stacks() noexcept;

// Writes each thread's stack, or the system call that one with blocked signals sits in, to stderr. Waits
// at most 100 ms for each thread; allocates nothing.
void show_stacks() noexcept;

}  // namespace hydrant::stale
