// Chooses what a miss registers: the request, with its neighbours, or with the expected continuation of its
// stream.
//
// Invariant: a plan contains the request and grants its rights; unless the request alone is larger, it is
// no larger than merge_bytes (where it replaces neighbours: crowded_merge_bytes and half of the budget),
// stream_bytes and max_region_bytes allow. Refusals of the registrar are remembered for
// RefusalList::kLifeNs: a refused range is not requested again.
#pragma once

#include "firehose/cache/budget/budget.hpp"
#include "firehose/cache/budget/retirement.hpp"
#include "firehose/cache/budget/working_set.hpp"
#include "firehose/cache/index/region_tables.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/cache/plan/pin_request.hpp"
#include "firehose/cache/plan/refusal_list.hpp"
#include "firehose/cache/region/extensions.hpp"
#include "firehose/watch/rule_clock.hpp"

namespace hydrant {

class Planner {
 public:
  struct Parts {
    const DomainConfig& config;
    RegionStore& store;
    RegionTables& tables;
    Budget& budget;
    WorkingSet& working_set;
    const Retirement& retirement;
    Extensions& extensions;
  };
  explicit Planner(const Parts& parts) noexcept : parts_(parts) {}

  void plan(const CacheLock&, PinRequest& request, Plan* plan) noexcept;
  // Adds to the candidate what a policy may want to know.
  void add_room(const CacheLock&, const PinRequest& request, const Plan& plan,
                uint64_t kernel_pending, AdmissionPolicy::Candidate* candidate) const noexcept;
  // The share of the budget that the regions take that the plan makes superfluous.
  Budget::Share replaced(const CacheLock&, const Plan& plan) const noexcept;
  // True if a joined neighbour may have been invalidated since plan(). If the registrar must unpin before
  // memory is released, only memory of the request itself may be registered after that.
  bool is_outdated(const CacheLock&, const PinRequest& request, const Plan& plan) const noexcept {
    return parts_.config.unpin_before_release && plan.range != request.pages &&
           plan.invalidations != invalidations_;
  }
  // True if the plan costs more than the request, and others should not pay for that.
  static bool is_beyond_need(const PinRequest& request, const Plan& plan) noexcept {
    if (plan.range == request.pages || plan.huge_pages) return false;
    return !is_earned(request, plan);
  }
  // True if the plan is longer for a stream whose own misses would cost others as much.
  static bool is_earned(const PinRequest& request, const Plan& plan) noexcept {
    return plan.range != request.pages && plan.stream && request.advice.earned;
  }
  // The plan was claimed, or abandoned: the stream goes on from there.
  void note_claimed(const CacheLock&, const PinRequest& request, const Plan& plan) noexcept;
  void note_abandoned(const CacheLock&, const PinRequest& request, const Plan& plan,
                      bool refused) noexcept;

  bool is_refused(const CacheLock&, MemoryRange range, Access access) const noexcept {
    return !refusals_.empty() && refusals_.refuses(range, access, rule_now_ns());
  }
  void note_refused(const CacheLock&, MemoryRange range, Access access) noexcept {
    refusals_.add(range, access, rule_now_ns());
  }
  // A refusal holds while the memory is watched: the report of its release is what ends it early.
  bool has_refusal(const CacheLock&, MemoryRange range) const noexcept {
    return !refusals_.empty() && refusals_.overlaps(range, rule_now_ns());
  }
  // Precedes unwatching the memory of the domain's refusals.
  void forget_refusals(const CacheLock&) noexcept { refusals_.clear(); }
  // Forgets what was learnt about the range: its memory is new.
  void forget(const CacheLock&, MemoryRange range) noexcept;
  void forget_all(const CacheLock&) noexcept;

 private:
  // A plan is extended to at most `most` bytes. A longer neighbour joins once requests that reached over its
  // ends add up to its length divided by `share`. After more than `joins` neighbours no further one joins.
  struct Growth {
    size_t most;
    size_t share;
    size_t joins;
  };
  void extend(const CacheLock&, Growth growth, Plan* plan) noexcept;
  void replace_neighbours(const CacheLock&, Plan* plan) noexcept;
  bool close_gap(const CacheLock&, size_t most, Plan* plan) noexcept;
  bool join_neighbour(const CacheLock&, RegionIndex neighbour, Growth growth, Plan* plan) noexcept;
  bool follow_stream(const CacheLock&, PinRequest& request, Plan* plan) noexcept;
  MemoryRange without_registered(const CacheLock&, MemoryRange pages,
                                 MemoryRange range) const noexcept;

  const Parts parts_;
  RefusalList refusals_;
  uint64_t invalidations_ = 0;  // calls of forget() and forget_all()
};

}  // namespace hydrant
