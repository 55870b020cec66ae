// The level of log messages: the value of a knob, unless the program has chosen another. log.cpp asks for it.
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"

namespace hydrant {
namespace {

constexpr int kUnset = -1;

// Written by log_level() and set_log_level(), read by all threads. Relaxed: it publishes no other data.
std::atomic<int> g_level{kUnset};

}  // namespace

LogLevel log_level() noexcept {
  int level = g_level.load(std::memory_order_relaxed);
  if (level != kUnset) [[likely]]
    return static_cast<LogLevel>(level);
  // Stores the default first: reading the knob may itself log a warning.
  if (!g_level.compare_exchange_strong(level, static_cast<int>(LogLevel::kWarning),
                                       std::memory_order_relaxed)) {
    return static_cast<LogLevel>(level);
  }
  const auto chosen = static_cast<int>(knob_number(Knob::kLog));
  g_level.store(chosen, std::memory_order_relaxed);
  return static_cast<LogLevel>(chosen);
}

void set_log_level(LogLevel level) noexcept {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void reset_log_level() noexcept { g_level.store(kUnset, std::memory_order_relaxed); }

}  // namespace hydrant
