// Reads small files of /proc and /sys, for all that asks the kernel about this machine.
#include "firehose/base/machine/small_file.hpp"

#include "firehose/base/uncancelled.hpp"

#include <cstdio>
#include <fcntl.h>

namespace hydrant {

size_t read_small_file(const char* path, char* text, size_t room) noexcept {
  text[0] = '\0';
  const int fd = uncancelled::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t used = 0;
  while (used + 1 < room) {
    const ssize_t got = uncancelled::read(fd, text + used, room - 1 - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  uncancelled::close(fd);
  text[used] = '\0';
  return used;
}

bool join_path(char* out, size_t room, const char* first, const char* second,
               const char* third) noexcept {
  const int len = std::snprintf(out, room, "%s%s%s", first, second, third);
  return len >= 0 && static_cast<size_t>(len) < room;
}

}  // namespace hydrant
