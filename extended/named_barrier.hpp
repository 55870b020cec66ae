// GASNet-1's barrier: its rules of names, phases and results, over an engine that does the rest. Nothing here
// waits; barrier_calls.cpp does.
//
// States: idle -> open (notify) -> idle (finish).
//
// Threads: one at a time notifies, waits or tries, as the specification demands of clients; others may poll.
#pragma once

#include "am/progress.hpp"
#include "extended/barrier_engine.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace hydrant {

class NamedBarrier {
 public:
  // Registers with `progress` while a phase is open, if others may need this rank to be driven.
  // `strict`: false promises that all ranks agree on whether a barrier has a name
  // (HYDRANT_BARRIER_STRICT).
  NamedBarrier(std::unique_ptr<BarrierEngine> engine, ProgressTable& progress, bool strict)
      : engine_(std::move(engine)), progress_(progress), strict_(strict) {}

  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

  // Requires: not open.
  void notify(int id, int flags) noexcept;
  // False: not all have come. True: they have, *matched says whether names agree, and the phase is over.
  // Requires: open.
  bool finish(int id, int flags, bool* matched) noexcept;
  // 0 and the name that all agreed on at notify; 1 if it was a barrier without a name, there was a
  // mismatch, or none at all.
  int result(int* id) const noexcept;

  BarrierEngine& engine() noexcept { return *engine_; }
  const BarrierEngine& engine() const noexcept { return *engine_; }

 private:
  static uint32_t drive(void* self) noexcept;

  const std::unique_ptr<BarrierEngine> engine_;
  ProgressTable& progress_;
  const bool strict_;
  std::atomic<bool> open_{false};
  bool registered_ = false;
  BarrierName all_ = {.state = NameState::kMismatch, .id = 0};
};

}  // namespace hydrant
