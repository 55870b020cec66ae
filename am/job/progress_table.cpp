// Registers progress functions. Barriers and extended/ register here; poll_all() (waiting.cpp) runs them.
#include "am/job/progress_table.hpp"

#include "firehose/base/log.hpp"

namespace hydrant {

void ProgressTable::add(Function function, void* context, bool is_silent) noexcept {
  const MutexLock lock(mu_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  // A row's context never changes, so a poll that still has the old function calls it with the right
  // context. A row whose context is `context` but holds another function counts as taken.
  for (uint32_t i = 0; i < kRows; ++i) {
    Row& row = rows_[i];
    const Function held = row.function.load(std::memory_order_relaxed);
    if (i < count && (row.context.load(std::memory_order_relaxed) != context ||
                      (held != nullptr && held != function))) {
      continue;
    }
    row.context.store(context, std::memory_order_relaxed);
    row.is_silent.store(is_silent, std::memory_order_relaxed);
    if (is_silent) silent_adds_.fetch_add(1, std::memory_order_relaxed);
    row.function.store(function, std::memory_order_release);
    if (i >= count) count_.store(i + 1, std::memory_order_release);
    return;
  }
  log_error("cannot register a progress function: the table of %u is full", kRows);
}

void ProgressTable::remove(Function function, void* context) noexcept {
  const MutexLock lock(mu_);
  for (Row& row : rows_) {
    if (row.function.load(std::memory_order_relaxed) == function &&
        row.context.load(std::memory_order_relaxed) == context) {
      row.function.store(nullptr, std::memory_order_release);
    }
  }
}

ProgressTable::SilentWork ProgressTable::silent_work() const noexcept {
  SilentWork work{.added = silent_adds_.load(std::memory_order_relaxed)};
  const uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    work.is_there |= rows_[i].function.load(std::memory_order_acquire) != nullptr &&
                     rows_[i].is_silent.load(std::memory_order_relaxed);
  }
  return work;
}

}  // namespace hydrant
