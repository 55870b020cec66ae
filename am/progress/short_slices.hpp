// The time slice of threads that wait for other ranks (decision 0044).
#pragma once

namespace hydrant {

// Asks the kernel for slices of HYDRANT_TIME_SLICE for the calling thread, once per thread
// (shorten_time_slice()).
// Threads: any. Cost: two system calls at the first call of a thread, then a look at a thread-local variable.
void take_short_slices() noexcept;

}  // namespace hydrant
