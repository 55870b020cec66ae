// Copies from and to addresses of this process that a peer has named. Unmapped memory gives an error
// result, not a crash. Threads: any.
//
// Cost: a memcpy in this process's segment; elsewhere a system call, in which the kernel checks the
// memory. If the kernel forbids that system call, access to unmapped memory kills the process as usual.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Returns false if part of [dest, dest+bytes) cannot be written; other parts may have been written.
bool write_own(uintptr_t dest, const void* source, size_t bytes) noexcept;
bool fill_own(uintptr_t dest, int value, size_t bytes) noexcept;
// Returns a pointer to the `bytes` bytes at `source`: `source` itself, or `scratch` after a copy. Null
// if they cannot be read.
const void* read_own(uintptr_t source, void* scratch, size_t bytes) noexcept;
// True if [source, source+bytes) can be read in place. Cost outside the segment: about 50 ns per page.
bool can_read_own(uintptr_t source, size_t bytes) noexcept;

}  // namespace hydrant
