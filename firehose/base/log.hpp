// Log messages on standard error: "hydrant: warning: <text>". One write(2) per message keeps lines of several
// threads or processes apart. HYDRANT_LOG chooses the level (default warning).
//
// kNotReady and a caller's bad argument are results, not log messages: log them at debug level at most. A hit
// never logs. Texts are cut at about 1000 bytes; line breaks and control characters become blanks.
//
// Threads: any, at any time; not async-signal-safe. No allocation, no lock; errno is preserved.
// Cost: one load if the level is disabled; otherwise one system call, which may block when the reader of
// standard error is slow.
#pragma once

#include <atomic>
#include <cstdint>

namespace hydrant {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

[[gnu::format(printf, 1, 2)]] void log_error(const char* format, ...) noexcept;
[[gnu::format(printf, 1, 2)]] void log_warning(const char* format, ...) noexcept;
[[gnu::format(printf, 1, 2)]] void log_info(const char* format, ...) noexcept;
[[gnu::format(printf, 1, 2)]] void log_debug(const char* format, ...) noexcept;

// The most verbose level that is written. Read from HYDRANT_LOG at first use (config/log_level.cpp).
LogLevel log_level() noexcept;
inline bool log_enabled(LogLevel level) noexcept { return level <= log_level(); }
// Overrides HYDRANT_LOG from now on.
void set_log_level(LogLevel level) noexcept;
// Discards the level, so that the next message reads HYDRANT_LOG again.
void reset_log_level() noexcept;

// Lets one message through per interval and counts the others. Make it static beside the message that
// it limits; it has no constructor to run:
//
//     static RateLimit limit(RateLimit::kSecond);
//     log_warning(limit, "ring %u is full", ring);
class RateLimit {
 public:
  static constexpr uint64_t kSecond = 1'000'000'000;
  static constexpr uint64_t kOnce = 0;  // the first message only

  constexpr explicit RateLimit(uint64_t interval_ns) noexcept : interval_ns_(interval_ns) {}
  RateLimit(const RateLimit&) = delete;
  RateLimit& operator=(const RateLimit&) = delete;

  // True if a message may be written at `now` (now_ns() of thread.hpp). *suppressed is the number of messages
  // held back since the last one.
  bool pass(uint64_t now, uint64_t* suppressed) noexcept;

 private:
  const uint64_t interval_ns_;
  // Written by the thread that passes. Relaxed: decides only which thread writes the line.
  std::atomic<uint64_t> next_ns_{0};
  std::atomic<uint64_t> suppressed_{0};
};

// log_warning() if `limit` passes it; appends how many messages were held back.
[[gnu::format(printf, 2, 3)]] void log_warning(RateLimit& limit, const char* format, ...) noexcept;

}  // namespace hydrant
