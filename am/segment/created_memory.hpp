// Memory that the library allocates for gex_Segment_Create(): whole pages, zero, between guards.
//
// Where other ranks of the node can map it, it lies in a memory file of its own. Such an extent keeps its
// addresses, and their places in the file, for the life of the process: a destroyed segment only gives its
// pages back, and a later segment takes the extent over. So a peer's mapping of it never becomes wrong. All
// other memory is private, and unmapped with its segment.
//
// Threads: any. Cost: some system calls.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>

namespace hydrant {

// Errors, with *addr unchanged: kResource.
Status allocate_created_segment(uintptr_t size, void** addr) noexcept;
// The caches of this process have forgotten the memory (Job::Hooks::segment_memory_ends).
void free_created_segment(void* addr, uintptr_t size) noexcept;

}  // namespace hydrant
