// Interface of barrier algorithms: one barrier at a time over all ranks of a job, without waiting.
// start() announces this rank's arrival; finish() tests whether all ranks have arrived. The rules of
// the APIs are in named_barrier.hpp and team_barrier.hpp.
//
// Threads: callers serialise start() and finish(). Any thread may call make_progress(), ready() and
// find_missing() at any time, also after the barrier has finished.
#pragma once

#include "extended/barrier/barrier_name.hpp"
#include "extended/barrier/missing_ranks.hpp"
#include "extended/event/event.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

class BarrierEngine {
 public:
  virtual ~BarrierEngine() = default;
  BarrierEngine() = default;
  BarrierEngine(const BarrierEngine&) = delete;
  BarrierEngine& operator=(const BarrierEngine&) = delete;

  // "SHM", "RDMADISSEM", "AMDISSEM" or "AMCENTRAL".
  virtual const char* name() const noexcept = 0;

  // Announces this rank's arrival with the name `mine`. `no_names`: all ranks promise to pass no name,
  // so only a mismatch has to be sent. Requires that the previous barrier has finished.
  virtual void start(BarrierName mine, bool no_names) noexcept = 0;

  // Returns true if all ranks have arrived; *all is the join of their names. Runs no handlers.
  // Afterwards start() may be called again.
  virtual bool finish(BarrierName* all) noexcept = 0;

  // Advances the barrier on behalf of other ranks; returns the number of steps. Runs no handlers.
  virtual uint32_t make_progress() noexcept = 0;
  // True if other ranks may depend on make_progress() while this rank computes between start() and finish().
  virtual bool needs_progress() const noexcept = 0;
  // True if ranks arrive without notifying sleepers (ProgressTable::add()).
  virtual bool is_silent() const noexcept { return false; }

  // True if finish() would succeed or make_progress() would make progress. Checked just before a sleep.
  virtual bool ready() const noexcept = 0;

  // Returns where the ranks that have not arrived were last seen.
  virtual WaitTarget wait_target() const noexcept { return WaitTarget::kUnknown; }

  // Adds ranks that have not arrived, as far as this rank knows; at least one while it waits.
  virtual void find_missing(MissingRanks* missing) const noexcept = 0;
};

}  // namespace hydrant
