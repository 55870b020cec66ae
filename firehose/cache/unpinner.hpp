// Deregisters retired regions without the mutex, and then returns their slots and their charge.
//
// Invariant: a retiring region is unpinned once; its slot goes into quarantine, and its charge back to the
// budget or to the reservation that it paid for, only after that.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/cache/budget/budget.hpp"
#include "firehose/cache/coherence/invalidator.hpp"
#include "firehose/cache/coherence/watch_link.hpp"
#include "firehose/cache/region/free_slots.hpp"

namespace hydrant {

class Unpinner {
 public:
  struct Parts {
    const char* name;  // of the domain, for the log
    Mutex& mu;
    Registrar& registrar;
    RegionStore& store;
    UnpinsUnderWay& unpins;
    FreeSlots& free_slots;
    Budget& budget;
    WatchLink& watch;
    Invalidator& invalidator;
    CacheTotals& totals;
  };
  // The outcome of a call.
  struct Outcome {
    uint64_t unpinned = 0;
    uint64_t failures = 0;
    UnpinResult worst = UnpinResult::kDone;
    bool kernel_keeps() const noexcept { return worst == UnpinResult::kPending; }
  };
  enum class Charge { kReleased, kReserved };  // reserved: it paid for a reservation

  explicit Unpinner(const Parts& parts) noexcept : parts_(parts) {}

  // Both steps. True if the kernel still charges some of it.
  bool unpin(RegionQueue* retired, Charge charge) noexcept {
    return !retired->empty() && unpin_all(retired, charge);
  }
  // In two steps: without the mutex, and under it.
  Outcome deregister(const RegionQueue& retired) noexcept;
  void settle(const CacheLock&, RegionQueue* retired, const Outcome& outcome,
              Charge charge) noexcept;

 private:
  bool unpin_all(RegionQueue* retired, Charge charge) noexcept;
  template <size_t kMost>
  Outcome deregister_by(const RegionQueue& retired) noexcept;

  const Parts parts_;
};

}  // namespace hydrant
