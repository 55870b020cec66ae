// Explains faults in memory that ranks share: an access beyond a segment, into its guard area
// (SIGSEGV), or to a page that the kernel has no memory for (SIGBUS). The handler prints one line with
// rank, address and segment, then calls the previously installed handler, the client's included.
//
// A handler that the client installs later replaces this one, unless it calls the previous handler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Installs the handlers, once per process, except for signals that GASNET_NO_CATCH_SIGNAL names.
void catch_memory_faults() noexcept;

// Formats the line for an address, without a newline; returns 0 if no guarded memory contains it. Safe
// in signal handlers. `no_memory`: the fault was a SIGBUS.
size_t describe_fault(uintptr_t addr, bool no_memory, char* text, size_t room) noexcept;

}  // namespace hydrant
