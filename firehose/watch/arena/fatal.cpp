#include "firehose/watch/arena/fatal.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace hydrant::arena {

void fatal(const char* what, const void* p) noexcept {
  char text[200] = "libhydrant_alloc: ";
  std::strncat(text, what, 150);
  std::strcat(text, ": 0x");
  size_t at = std::strlen(text);
  const auto value = reinterpret_cast<uintptr_t>(p);
  for (int shift = 60; shift >= 0; shift -= 4) text[at++] = "0123456789abcdef"[value >> shift & 15];
  text[at++] = '\n';
  // Nothing can be done about a message that cannot be written.
  const ssize_t written = write(STDERR_FILENO, text, at);
  static_cast<void>(written);
  std::abort();
}

}  // namespace hydrant::arena
