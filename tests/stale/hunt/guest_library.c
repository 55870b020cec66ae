/* A library that the hunt loads and unloads: only the dynamic loader maps its .bss. */
#include <stddef.h>

#define GUEST_BYTES (256 * 1024)

__attribute__((visibility("default"), aligned(4096))) char hunt_guest_memory[GUEST_BYTES];
__attribute__((visibility("default"))) const size_t hunt_guest_bytes = GUEST_BYTES;
