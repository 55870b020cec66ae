// Copies from and to this process's own memory that a peer has named: what is not there is an answer and no
// crash. Threads: any.
//
// Cost: a copy in this process's segment; elsewhere a system call, which looks for us. Where the
// kernel forbids that one, memory that is not there ends the process with a signal, as it would
// without these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// False: some of [dest, dest+bytes) cannot be written; what could be may have been.
bool write_own(uintptr_t dest, const void* source, size_t bytes) noexcept;
bool fill_own(uintptr_t dest, int value, size_t bytes) noexcept;
// Where `bytes` bytes from `source` on can be read: there, or in `scratch` after a copy. Null: they cannot.
const void* read_own(uintptr_t source, void* scratch, size_t bytes) noexcept;
// Whether [source, source+bytes) can be read where it is. Cost outside the segment: some 50 ns per page.
bool can_read_own(uintptr_t source, size_t bytes) noexcept;

}  // namespace hydrant
