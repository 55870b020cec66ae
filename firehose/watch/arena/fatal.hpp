// Aborts a program that passed an invalid pointer or corrupted an arena.
#pragma once

namespace hydrant::arena {

// Writes "libhydrant_alloc: <what>: <p>" to standard error and aborts. Allocates nothing.
[[noreturn]] void fatal(const char* what, const void* p) noexcept;

}  // namespace hydrant::arena
