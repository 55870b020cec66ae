// GASNet-1's barrier: the rules of names, phases and results, over a BarrierEngine. Never waits;
// barrier_calls.cpp waits.
//
// States: idle -> open (notify) -> idle (finish).
//
// Threads: clients must serialise notify, wait and try, as the specification demands; other threads may
// poll.
#pragma once

#include "am/job/progress_table.hpp"
#include "extended/barrier/barrier_engine.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace hydrant {

class NamedBarrier {
 public:
  // Registers with `progress` while a phase is open, if other ranks may depend on this rank's polls.
  // `strict` false: all ranks promise to agree on whether a barrier has a name
  // (HYDRANT_BARRIER_STRICT).
  NamedBarrier(std::unique_ptr<BarrierEngine> engine, ProgressTable& progress, bool strict)
      : engine_(std::move(engine)), progress_(progress), strict_(strict) {}

  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }

  // Requires that no phase is open.
  void notify(int id, int flags) noexcept;
  // Returns false if ranks are missing. Returns true at the end of the phase; *matched is true if the
  // names agree. Requires an open phase.
  bool finish(int id, int flags, bool* matched) noexcept;
  // Returns 0 and the name that all ranks agreed on at notify; 1 if the barrier had no name or a
  // mismatch, or if there was no barrier.
  int result(int* id) const noexcept;

  BarrierEngine& engine() noexcept { return *engine_; }
  const BarrierEngine& engine() const noexcept { return *engine_; }

 private:
  static uint32_t make_progress(void* self) noexcept;

  const std::unique_ptr<BarrierEngine> engine_;
  ProgressTable& progress_;
  const bool strict_;
  std::atomic<bool> open_{false};
  bool registered_ = false;
  BarrierName all_ = {.state = NameState::kMismatch, .id = 0};
};

}  // namespace hydrant
