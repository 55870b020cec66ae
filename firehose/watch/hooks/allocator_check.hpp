// Whether the allocator in use shows the hooks all that it takes from the kernel. For the constructor only.
#pragma once

#include <cstddef>

namespace hydrant::hooks {

// Larger than what libc would take as advice to serve such sizes from its heap from now on.
inline constexpr size_t kProbeBytes = size_t{33} << 20;

// libc's allocator: whether its chunks look as libc_chunks.hpp says. If not they are not read any more.
bool libc_chunks_are_readable();

// Any other one, given by its two functions: whether a large block lies in a mapping that our mmap or sbrk
// saw.
bool allocator_maps_by_symbol(void* (*allocate)(size_t), void (*release)(void*));

// Whether one of these answered false for lack of memory to try the allocator with.
bool allocator_check_lacked_memory();

}  // namespace hydrant::hooks
