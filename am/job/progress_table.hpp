// The table of progress functions that a poll runs. A module registers its function while it has
// pending work and removes it afterwards, for example during a barrier. The transport is polled before
// this table.
//
// Threads: any thread may poll. Registration takes a mutex and does not wait for polls, so a function
// may run once more just after its removal, and must tolerate that.
#pragma once

#include "firehose/base/thread.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace hydrant {

class ProgressTable {
 public:
  static constexpr uint32_t kRows = 16;
  // Does all work that is possible now, without waiting; returns the number of events.
  using Function = uint32_t (*)(void* context);

  // Registers a pair once, even if added twice. At most kRows different contexts are possible; beyond
  // that it logs an error and does not register. `is_silent`: the work continues when words are written that
  // notify no process, such as those that an adapter writes, so that a sleeper has to look by itself.
  void add(Function function, void* context, bool is_silent = false) noexcept;
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

  // For sleepers: whether there is silent work now, and how often such work was added.
  struct SilentWork {
    bool is_there = false;
    uint64_t added = 0;
  };
  SilentWork silent_work() const noexcept;

 private:
  // A row keeps its first context for ever.
  struct Row {
    std::atomic<Function> function{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<bool> is_silent{false};
  };
  Mutex mu_;
  std::atomic<uint32_t> count_{0};  // rows that may be in use; only grows
  std::atomic<uint64_t> silent_adds_{0};
  std::array<Row, kRows> rows_;
};

}  // namespace hydrant
