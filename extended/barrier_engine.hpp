// One barrier at a time over all ranks of a job, without a wait in it: start() says that this rank is there,
// finish() whether all are. What the algorithms have in common; the API's rules are in barrier.hpp.
//
// Threads: start() and finish() by one at a time (their caller sees to it); drive(), ready() and
// find_missing() by any, at any time, also after the barrier is finished.
#pragma once

#include "extended/barrier_name.hpp"
#include "extended/event.hpp"
#include "rdma/bootstrap.hpp"

#include <cstdint>
#include <vector>

namespace hydrant {

class BarrierEngine {
 public:
  virtual ~BarrierEngine() = default;
  BarrierEngine() = default;
  BarrierEngine(const BarrierEngine&) = delete;
  BarrierEngine& operator=(const BarrierEngine&) = delete;

  // "SHM", "AMDISSEM" or "AMCENTRAL".
  virtual const char* name() const noexcept = 0;

  // This rank has come, and brings `mine`. `no_names`: all ranks promise that nobody brings a name, so only
  // a mismatch has to be told. Requires: the barrier before is finished.
  virtual void start(BarrierName mine, bool no_names) noexcept = 0;

  // True if all have come; *all is what they brought. Runs no handlers. Once true, start() comes next.
  virtual bool finish(BarrierName* all) noexcept = 0;

  // Does for others what this rank owes them; how many things happened. Runs no handlers.
  virtual uint32_t drive() noexcept = 0;
  // True if others may have to wait for drive() while this rank computes between start() and finish().
  virtual bool needs_driving() const noexcept = 0;

  // True if finish() would be, or drive() would get on. For whoever is about to sleep.
  virtual bool ready() const noexcept = 0;

  // Where those were last seen who have not come.
  virtual WaitsFor waits_for() const noexcept { return WaitsFor::kUnknown; }

  // Ranks that have not come, as far as this one can know: at least one while it waits.
  virtual void find_missing(std::vector<Rank>* missing) const = 0;
};

}  // namespace hydrant
