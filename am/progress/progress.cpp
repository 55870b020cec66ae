// Registers progress functions. Barriers and extended/ register here; poll_all() (waiting.cpp) runs them.
#include "am/progress/progress.hpp"

#include "firehose/base/log.hpp"

namespace hydrant {

void ProgressTable::add(Function function, void* context) noexcept {
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

}  // namespace hydrant
