// The time slice that the kernel gives the calling thread (decision 0044).
#pragma once

#include <cstdint>

namespace hydrant {

// Asks the kernel for slices of `ns` nanoseconds (100 us is its least). Linux 6.12 and later lets a thread
// that wakes preempt one with longer slices; its share of the processor stays the same. Threads and processes
// that it starts inherit them. Without effect on older kernels, on threads whose slices are shorter already,
// and under policies other than SCHED_OTHER.
// Threads: any. Keeps errno. Cost: two system calls.
void shorten_time_slice(uint64_t ns) noexcept;

// The slice of the thread of that number (0: the calling one), in ns; 0 if the kernel has none.
uint64_t time_slice_ns(int thread = 0) noexcept;

}  // namespace hydrant
