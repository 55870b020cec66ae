// The end of a program that damaged an arena.
#pragma once

namespace hydrant::arena {

// Writes "libhydrant_alloc: <what>: <p>" to standard error and aborts. Allocates nothing.
[[noreturn]] void fatal(const char* what, const void* p) noexcept;

}  // namespace hydrant::arena
