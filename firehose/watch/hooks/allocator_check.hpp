// Checks that the hooks see all memory that the allocator takes from the kernel. For the constructor only.
#pragma once

#include <cstddef>

namespace hydrant::hooks {

// Size of a trial block: so large that freeing it does not make libc serve such sizes from its heap later.
inline constexpr size_t kProbeBytes = size_t{33} << 20;

// Both return nullptr, or the cause and the remedy for the log.

// For libc's allocator: whether its chunks look as libc_chunks.hpp describes; if not, the hooks stop reading
// them.
const char* fault_of_libc_chunks();

// For another allocator, given by its two functions: whether a large block lies in memory from the hooked
// mmap or sbrk.
const char* fault_of_allocator(void* (*allocate)(size_t), void (*release)(void*));

}  // namespace hydrant::hooks
