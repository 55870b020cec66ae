// Messages of the tools on standard error: "*** LABEL (rank N): text". One write(2) per message.
//
// Threads: any; also in signal handlers, if vsnprintf() may be called there. errno is preserved.
#pragma once

#include <cstdarg>
#include <cstddef>

namespace hydrant {

// Maximum size of a message in bytes; longer messages are cut.
inline constexpr size_t kConsoleBytes = 2048;

[[gnu::format(printf, 2, 3)]] void console_message(const char* label, const char* format,
                                                   ...) noexcept;
// Writes `position` before the text, unless it is null or "".
[[gnu::format(printf, 3, 0)]] void console_message_va(const char* label, const char* position,
                                                      const char* format, va_list args) noexcept;

// Like snprintf(), but appends: `used` of the `room` bytes of `line` are in use. Returns the new number
// of used bytes.
[[gnu::format(printf, 4, 5)]] size_t append(char* line, size_t room, size_t used,
                                            const char* format, ...) noexcept;

}  // namespace hydrant
