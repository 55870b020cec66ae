// Detects an adapter that stopped working on a queue pair without reporting an error. A working adapter gives
// up after its retries and reports that; one that hangs produces no completion at all.
//
// Invariant: checks_ is the number of checks in a row that found a completion outstanding and no progress
// since the check before. Checks are counted instead of time, because a stopped process makes no checks.
#pragma once

#include <cstdint>

namespace hydrant::ibv {

class StallDetector {
 public:
  // Returns the number of checks in a row without progress. `is_outstanding`: a completion is due.
  uint32_t check(bool is_outstanding, uint64_t completed) noexcept {
    checks_ = is_outstanding && completed == completed_ ? checks_ + 1 : 0;
    completed_ = completed;
    return checks_;
  }

 private:
  uint64_t completed_ = 0;
  uint32_t checks_ = 0;
};

}  // namespace hydrant::ibv
