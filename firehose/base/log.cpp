// Formats a message on the stack and writes it to standard error at once. All components call it.
#include "firehose/base/log.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/thread.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr size_t kLineBytes = 1024;

const char* level_name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "message";
}

// Converts snprintf's result to the number of bytes in the buffer.
size_t written(int length, size_t room) noexcept {
  if (length < 0 || room == 0) return 0;
  const auto wanted = static_cast<size_t>(length);
  return wanted < room ? wanted : room - 1;
}

[[gnu::format(printf, 3, 0)]] void write_line(LogLevel level, uint64_t suppressed,
                                              const char* format, va_list args) noexcept {
  const CancellationDisabled guard;
  const int saved_errno = errno;
  char line[kLineBytes];
  size_t used =
      written(std::snprintf(line, sizeof line, "hydrant: %s: ", level_name(level)), sizeof line);
  used +=
      written(std::vsnprintf(line + used, sizeof line - used, format, args), sizeof line - used);
  if (suppressed > 0) {
    used += written(std::snprintf(line + used, sizeof line - used, " (%llu more not shown)",
                                  static_cast<unsigned long long>(suppressed)),
                    sizeof line - used);
  }
  for (size_t i = 0; i < used; ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c < 0x20 || c == 0x7f) line[i] = ' ';
  }
  line[used] = '\n';  // replaces the terminator: used < kLineBytes
  (void)write_quietly(STDERR_FILENO, line, used + 1);
  errno = saved_errno;
}

}  // namespace

bool RateLimit::pass(uint64_t now, uint64_t* suppressed) noexcept {
  uint64_t next = next_ns_.load(std::memory_order_relaxed);
  const uint64_t after = interval_ns_ == kOnce ? UINT64_MAX : now + interval_ns_;
  if (now < next || !next_ns_.compare_exchange_strong(next, after, std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

// Four similar bodies: each variadic function has to create its own va_list.
void log_error(const char* format, ...) noexcept {
  if (!log_enabled(LogLevel::kError)) return;
  va_list args;
  va_start(args, format);
  write_line(LogLevel::kError, 0, format, args);
  va_end(args);
}

void log_warning(const char* format, ...) noexcept {
  if (!log_enabled(LogLevel::kWarning)) return;
  va_list args;
  va_start(args, format);
  write_line(LogLevel::kWarning, 0, format, args);
  va_end(args);
}

void log_info(const char* format, ...) noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  va_list args;
  va_start(args, format);
  write_line(LogLevel::kInfo, 0, format, args);
  va_end(args);
}

void log_debug(const char* format, ...) noexcept {
  if (!log_enabled(LogLevel::kDebug)) return;
  va_list args;
  va_start(args, format);
  write_line(LogLevel::kDebug, 0, format, args);
  va_end(args);
}

void log_warning(RateLimit& limit, const char* format, ...) noexcept {
  if (!log_enabled(LogLevel::kWarning)) return;
  uint64_t suppressed = 0;
  if (!limit.pass(now_ns(), &suppressed)) return;
  va_list args;
  va_start(args, format);
  write_line(LogLevel::kWarning, suppressed, format, args);
  va_end(args);
}

}  // namespace hydrant
