// Lines of the tools on standard error: "*** LABEL (rank N): text". One write(2) per message.
//
// Threads: any; also in signal handlers, as far as vsnprintf() may be called there. errno is preserved.
#pragma once

#include <cstdarg>
#include <cstddef>

namespace hydrant {

// Bytes of a message at most; the rest is cut.
inline constexpr size_t kConsoleBytes = 2048;

[[gnu::format(printf, 2, 3)]] void console_message(const char* label, const char* format,
                                                   ...) noexcept;
// `place` may be null or "": nothing; otherwise it is written before the text.
[[gnu::format(printf, 3, 0)]] void console_message_va(const char* label, const char* place,
                                                      const char* format, va_list args) noexcept;
// Everything, in spite of signals and full pipes; errors are ignored.
void write_whole(int fd, const char* text, size_t len) noexcept;

// snprintf() that appends: `used` bytes of `line` are taken, at most `room` may be. Returns the bytes
// now taken.
[[gnu::format(printf, 4, 5)]] size_t append(char* line, size_t room, size_t used,
                                            const char* format, ...) noexcept;

}  // namespace hydrant
