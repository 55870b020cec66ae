// Small files of /proc and /sys.
#pragma once

#include "firehose/base/uncancelled.hpp"

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace hydrant {

inline constexpr size_t kPathBytes = 1024;  // room for a path of these files

// Reads the first bytes of a file into `text`, terminated. Returns how many, 0 if it cannot be read.
// Allocates nothing, and is async-signal-safe.
size_t read_small_file(const char* path, char* text, size_t room) noexcept;

// Calls visit(line) for each line of a file, without its newline, until visit returns false. A terminated
// text begins at line.data(). Calls nothing if the file cannot be opened. Takes 4 KiB of the stack.
template <typename Visit>
void for_each_line(const char* path, Visit visit) noexcept {
  std::FILE* const file = uncancelled::fopen(path, "re");
  if (file == nullptr) return;
  char text[4096];
  while (uncancelled::fgets(text, sizeof text, file) != nullptr) {
    std::string_view line(text);
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (!visit(line)) break;
  }
  uncancelled::fclose(file);
}

// Concatenates paths; false if the result was truncated.
bool join_path(char* out, size_t room, const char* first, const char* second,
               const char* third = "") noexcept;

}  // namespace hydrant
