// Regions of a peer's memory: begun here, registered by the peer, and ended by its reply. The budget is the
// peer's lease. All else, hits included, is as for memory of this process.
//
// Invariant: each registration that begin() began is ended once.
#pragma once

#include "firehose/cache/domain_miss.hpp"
#include "firehose/cache/domain_release.hpp"

namespace hydrant {

// A registration that a peer makes.
struct PeerPin {
  bool is_open() const noexcept { return has_begun; }
  // True if nothing was begun, because a pending registration covers the range.
  bool joins() const noexcept { return has_joined; }
  MemoryRange least() const noexcept { return request.pages; }  // required
  MemoryRange wanted() const noexcept { return plan.range; }    // requested
  Access access() const noexcept { return plan.access; }
  uint64_t charge() const noexcept { return plan.charge; }
  bool evicted() const noexcept { return plan.evicted; }  // other regions were evicted for it

  PinRequest request{};
  Plan plan{};
  bool has_begun = false, has_joined = false;
};

// A grant by the peer; `range` contains least().
struct PeerGrant {
  MemoryRange range;
  uint64_t charge = 0;  // of the lease: at most pin.charge()
  const std::byte* key = nullptr;
  bool once = false;  // for this use only: it is not cached
};

class PeerRegions {
 public:
  PeerRegions(CacheParts& parts, MissPath& miss, Releases& releases) noexcept
      : parts_(parts), miss_(miss), releases_(releases) {}

  // kOk: *out is held. kNotReady with pin->is_open(), which means begun: the caller sends the request to the
  // peer, and calls end() once. kNotReady otherwise: not now; pin->joins() gives the cause.
  Status begin(MemoryRange range, Access need, PeerPin* pin, const RegionSlot** out) noexcept;
  // `status` is the peer's reply. kOk: *out is held. kNotReady also if the peer recalled it meanwhile.
  Status end(PeerPin& pin, Status status, const PeerGrant& grant, const RegionSlot** out) noexcept;
  // Sets the budget in force. Unheld regions beyond it are unpinned at once.
  void set_lease(uint64_t bytes) noexcept;
  // Evicts unheld regions worth `bytes`; all of them if they are worth less.
  void evict_unheld(uint64_t bytes) noexcept;
  // True if some region is dead, being unpinned, or pending and invalidated, as recalled ones are. Cost:
  // linear in the regions.
  bool has_pending_unpins() noexcept;

 private:
  CacheParts& parts_;
  MissPath& miss_;
  Releases& releases_;
};

}  // namespace hydrant
