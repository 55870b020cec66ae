// Tests whether this rank's adapter executes atomic operations as domains need them.
#pragma once

namespace hydrant {

// True if the adapter changes own memory, and returns the old value in the byte order of the processor. The
// first call connects the adapter with itself and tries; at most 5 s. Logs why not. Polls.
bool do_adapter_atomics_work() noexcept;

}  // namespace hydrant
