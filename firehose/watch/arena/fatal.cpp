// Aborts with a message. The heap and the store call it when a pointer or a record is invalid.
#include "firehose/watch/arena/fatal.hpp"

#include "firehose/base/quiet_write.hpp"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace hydrant::arena {

void fatal(const char* what, const void* p) noexcept {
  char text[200];
  int length = std::snprintf(text, sizeof text, "libhydrant_alloc: %s: %p\n", what, p);
  if (length < 0 || length >= static_cast<int>(sizeof text)) length = sizeof text - 1;
  (void)write_quietly(STDERR_FILENO, text, static_cast<size_t>(length));
  std::abort();
}

}  // namespace hydrant::arena
