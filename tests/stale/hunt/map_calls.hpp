// The calls that map and unmap windows: libc's functions, which the hooks see, or raw system calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant::stale {

enum class RawCalls : uint8_t {
  kNone,    // libc's functions
  kInTurn,  // system calls, one at a time: each begins after the previous one has returned
  kRacing,  // system calls, at any time
};

// Sets the mode of the whole process.
void choose_map_calls(RawCalls raw);
RawCalls chosen_map_calls();

void* map_memory(void* addr, size_t len, int protection, int flags, int file);
// Sometimes a child process that shares all memory makes the raw call.
int unmap_memory(void* addr, size_t len);
int advise_memory(void* addr, size_t len, int advice);
void* move_memory(void* addr, size_t len, size_t new_len, int flags, void* to = nullptr);

// Number of raw calls so far.
uint64_t raw_calls_made();

}  // namespace hydrant::stale
