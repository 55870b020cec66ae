// Decides when a removal is over: a miss asks before its memory may be cached (monitor_cover.cpp), and
// unwatching before it drops what needs the reports (unwatcher.cpp).
#include "firehose/watch/removals_under_way.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/watch/monitor_clients.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {

// A removal in memory of a new owner is over when its caller has returned, which the hooks show.
void RemovalsUnderWay::replace(const RangesLock&, MemoryRange range) noexcept {
  calls_.are_complete() ? removed_.forget_unknown(range) : removed_.forget(range);
}

// True when every call that was under way when this removal was reported has returned.
bool RemovalsUnderWay::have_callers_returned(uint64_t number) const noexcept {
  if (!calls_.are_complete()) return false;
  HookedCallsUnderWay::Wait wait{number, MonitorClients::kAllMemory, 0, false};
  return calls_.have_returned(wait);
}

bool RemovalsUnderWay::under_way(MemoryRange range) noexcept {
  if (is_mutant(Mutant::kRemovedCacheable)) return false;
  if (!deferred_.wait_until_taken()) return true;
  uint64_t newest = 0;
  {
    const RangesLock lock(watched_.mutex());
    if (is_mutant(Mutant::kNone)) mutant_delay();  // a handler may come here
    newest = removed_.newest(range);
  }
  if (newest == 0) return false;
  if (newest == RemovedRanges::kCallerUnknown) return true;
  if (!have_callers_returned(newest)) return true;
  const RangesLock lock(watched_.mutex());
  removed_.forget_up_to(newest);
  return false;
}

// The mutex is only tried: this may run in a signal handler that interrupted its holder.
void RemovalsUnderWay::forget_ended(MemoryRange range) noexcept {
  if (deferred_.any() || !lock_briefly(watched_.mutex())) return;
  uint64_t newest = 0;
  {
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    newest = removed_.newest(range);
  }
  if (newest == 0 || newest == RemovedRanges::kCallerUnknown || !have_callers_returned(newest))
    return;
  if (!lock_briefly(watched_.mutex())) return;
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  removed_.forget_up_to(newest);
}

}  // namespace hydrant
