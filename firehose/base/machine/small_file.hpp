// Small files of /proc and /sys.
#pragma once

#include <cstddef>

namespace hydrant {

inline constexpr size_t kPathBytes = 1024;  // room for a path of these files

// Reads the first bytes of a file into `text`, terminated. Returns how many, 0 if it cannot be read.
// Allocates nothing, and is async-signal-safe.
size_t read_small_file(const char* path, char* text, size_t room) noexcept;
// Concatenates paths; false if the result was truncated.
bool join_path(char* out, size_t room, const char* first, const char* second,
               const char* third = "") noexcept;

}  // namespace hydrant
