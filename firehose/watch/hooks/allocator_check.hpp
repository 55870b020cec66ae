// Checks that the hooks see all memory that the allocator takes from the kernel. For the constructor only.
#pragma once

#include <cstddef>

namespace hydrant::hooks {

// Size of a trial block: so large that freeing it does not make libc serve such sizes from its heap later.
inline constexpr size_t kProbeBytes = size_t{33} << 20;

// For libc's allocator: true if its chunks look as libc_chunks.hpp describes; if not, the hooks stop reading
// them.
bool libc_chunks_are_readable();

// For another allocator, given by its two functions: true if a large block lies in memory from the hooked
// mmap or sbrk.
bool allocator_maps_by_symbol(void* (*allocate)(size_t), void (*release)(void*));

// True if a check failed because no memory was left for its trial.
bool allocator_check_lacked_memory();

}  // namespace hydrant::hooks
