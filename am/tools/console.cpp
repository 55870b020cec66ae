// Formats messages and writes each at once. Called by all other files of the tools.
#include "am/tools/console.hpp"

#include "am/tools/job_hooks.hpp"
#include "firehose/base/quiet_write.hpp"

#include <cerrno>
#include <cstdio>
#include <unistd.h>

namespace hydrant {
namespace {

[[gnu::format(printf, 4, 0)]] size_t append_va(char* line, size_t room, size_t used,
                                               const char* format, va_list args) noexcept {
  const int wanted = std::vsnprintf(line + used, room - used, format, args);
  if (wanted < 0) return used;
  const size_t end = used + static_cast<size_t>(wanted);
  return end < room ? end : room - 1;
}

}  // namespace

size_t append(char* line, size_t room, size_t used, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  used = append_va(line, room, used, format, args);
  va_end(args);
  return used;
}

void console_message_va(const char* label, const char* position, const char* format,
                        va_list args) noexcept {
  const int saved_errno = errno;
  char line[kConsoleBytes];
  constexpr size_t kRoom = sizeof line - 1;  // one byte for the line break
  size_t used = append(line, kRoom, 0, "*** %s", label);
  if (const int rank = tools_rank(); rank >= 0)
    used = append(line, kRoom, used, " (rank %d)", rank);
  used = append(line, kRoom, used, ": ");
  if (position != nullptr && *position != '\0')
    used = append(line, kRoom, used, "in %s: ", position);
  used = append_va(line, kRoom, used, format, args);
  if (line[used - 1] != '\n') line[used++] = '\n';
  (void)write_quietly(STDERR_FILENO, line, used);
  errno = saved_errno;
}

void console_message(const char* label, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  console_message_va(label, nullptr, format, args);
  va_end(args);
}

}  // namespace hydrant
