// The time slice of threads that wait for other ranks (decision 0044).
#pragma once

namespace hydrant {

// Requests slices of HYDRANT_TIME_SLICE from the kernel for the calling thread, once per thread
// (shorten_time_slice()).
// Threads: any. Cost: two system calls at the first call of a thread, then a load of a thread-local variable.
void take_short_slices() noexcept;

}  // namespace hydrant
