// Lets hits find a registered region, or keeps it for its holders alone.
//
// Invariant: a published region is open, in the table of its rights and, unless it is prepinned, known to the
// policy; no other region of the table contains it or is contained in it. A region that is kept uncached was
// never open: its holds are in the shared counts alone.
#pragma once

#include "firehose/cache/budget/evictor.hpp"
#include "firehose/cache/coherence/watch_link.hpp"
#include "firehose/cache/plan/pin_request.hpp"

namespace hydrant {

class Publisher {
 public:
  struct Parts {
    uint64_t handle;  // of the domain
    RegionStore& store;
    HoldCounts& holds;
    FenceEpoch& epoch;
    HitChecks& checks;
    Gates& gates;
    RegionTables& tables;
    Extensions& extensions;
    Retirement& retirement;
    VictimList& victims;
    CacheTotals& totals;
    const WatchLink& watch;
  };
  explicit Publisher(const Parts& parts) noexcept : parts_(parts) {}

  // Publishes the region, or keeps it uncached: it may not be cached, or a larger region has come first.
  // False: uncached because the index had no memory.
  bool publish(const CacheLock&, const Plan& plan, bool cacheable) noexcept;

 private:
  bool enter(const CacheLock&, const Plan& plan) noexcept;
  bool covers_prepinned(const CacheLock&, const Plan& plan) const noexcept;
  void replace_covered(const CacheLock&, const Plan& plan) noexcept;
  void keep_uncached(const CacheLock&, const Plan& plan, bool cacheable) noexcept;

  const Parts parts_;
  bool has_prepinned_ = false;
};

}  // namespace hydrant
