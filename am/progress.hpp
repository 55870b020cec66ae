// What a poll does: a table of functions that modules register when they have something to drive and remove
// when they have not. The transport's is always first; a barrier's comes and goes.
//
// Threads: any may poll; registration takes a mutex and waits for nobody, so a function may run once more
// just after it was removed, and must bear that.
#pragma once

#include "firehose/base/thread.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace hydrant {

class ProgressTable {
 public:
  static constexpr uint32_t kRows = 16;
  // Does what can be done now, never waits; answers how many things happened.
  using Function = uint32_t (*)(void* context);

  // At most kRows different contexts ever; the same pair twice is one. Beyond that: one line in the log,
  // and it is not called.
  void add(Function function, void* context) noexcept;
  void remove(Function function, void* context) noexcept;

  uint32_t run() noexcept {
    uint32_t events = 0;
    const uint32_t count = count_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
      const Function function = rows_[i].function.load(std::memory_order_acquire);
      if (function != nullptr) events += function(rows_[i].context.load(std::memory_order_relaxed));
    }
    return events;
  }

 private:
  // A row keeps its context for ever once it has one.
  struct Row {
    std::atomic<Function> function{nullptr};
    std::atomic<void*> context{nullptr};
  };
  Mutex mu_;
  std::atomic<uint32_t> count_{0};  // rows that may be in use; only grows
  std::array<Row, kRows> rows_;
};

}  // namespace hydrant
