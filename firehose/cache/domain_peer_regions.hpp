// Registrations that a peer makes: begun here, and ended with its answer. The budget is what the peer lends.
// Everything else, hits above all, is as for memory of this process.
//
// Invariant: each registration that begin() began is ended once.
#pragma once

#include "firehose/cache/domain_miss.hpp"
#include "firehose/cache/domain_release.hpp"

namespace hydrant {

// A registration that a peer makes.
struct PeerPin {
  bool is_open() const noexcept { return has_begun; }
  // Not begun, because another one that covers it is under way.
  bool joins() const noexcept { return has_joined; }
  MemoryRange least() const noexcept { return request.pages; }  // is asked for
  MemoryRange wanted() const noexcept { return plan.range; }    // would be welcome
  Access access() const noexcept { return plan.access; }
  uint64_t charge() const noexcept { return plan.charge; }
  bool evicted() const noexcept { return plan.evicted; }  // others were given up for it

  PinRequest request{};
  Plan plan{};
  bool has_begun = false, has_joined = false;
};

// A grant by the peer; `range` contains least().
struct PeerGrant {
  MemoryRange range;
  uint64_t charge = 0;  // of the lease: at most pin.charge()
  const std::byte* key = nullptr;
  bool once = false;  // for this use alone: it is not cached
};

class PeerRegions {
 public:
  PeerRegions(CacheParts& parts, MissPath& miss, Releases& releases) noexcept
      : parts_(parts), miss_(miss), releases_(releases) {}

  // kOk: *out is held. kNotReady: pin->is_open(), and the caller asks the peer and calls end() once; or not,
  // and pin->joins() tells why.
  Status begin(MemoryRange range, Access need, PeerPin* pin, const RegionSlot** out) noexcept;
  // `status` is the peer's answer. kOk: *out is held. kNotReady also where it was taken back meanwhile.
  Status end(PeerPin& pin, Status status, const PeerGrant& grant, const RegionSlot** out) noexcept;
  // The budget in force, from now on. What is beyond it and not held goes at once.
  void set_lease(uint64_t bytes) noexcept;
  // Gives up regions that are not held, worth so much if there are as many.
  void evict_unheld(uint64_t bytes) noexcept;
  // Is there a region that was taken back and is held, not there yet, or not given to unpin() yet? Looks at
  // all.
  bool has_pending_unpins() noexcept;

 private:
  CacheParts& parts_;
  MissPath& miss_;
  Releases& releases_;
};

}  // namespace hydrant
