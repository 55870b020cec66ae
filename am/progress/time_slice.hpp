// The time slice of threads that wait for other ranks (decision 0044).
#pragma once

#include <cstdint>

namespace hydrant {

// Asks the kernel for slices of HYDRANT_TIME_SLICE for the calling thread, once per thread. Linux 6.12 and
// later lets a thread that wakes preempt one with longer slices; its share of the processor stays the same.
// Without effect on older kernels, on threads whose slices are shorter already, and under policies other than
// SCHED_OTHER.
// Threads: any. Cost: two system calls at the first call of a thread, then a look at a thread-local variable.
void take_short_slices() noexcept;

// What the kernel says of the calling thread, in ns; 0 if it says nothing.
uint64_t time_slice_ns() noexcept;

}  // namespace hydrant
