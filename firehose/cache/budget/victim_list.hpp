// The regions that the replacement policy knows: possible victims.
//
// Invariant: a region is in the policy exactly while its information says so. Regions that died may still be
// listed: the evictor skips them.
#pragma once

#include "firehose/cache/policy/victim_policy.hpp"
#include "firehose/cache/region/region_store.hpp"

namespace hydrant {

class VictimList {
 public:
  VictimList(RegionStore& store, VictimPolicy& policy) noexcept : store_(store), policy_(policy) {}

  // Requires: an open region that is not the client's own, and not listed.
  void add(const CacheLock& lock, RegionIndex region) noexcept {
    RegionInfo& info = store_.infos(lock)[region];
    info.listed = true;
    policy_.insert(region, info.range.len, info.charge);
  }
  // No effect on a region that is not listed.
  void remove(const CacheLock& lock, RegionIndex region) noexcept {
    RegionInfo& info = store_.infos(lock)[region];
    if (!info.listed) return;
    info.listed = false;
    policy_.erase(region);
  }
  VictimPolicy& policy(const CacheLock&) noexcept { return policy_; }

 private:
  RegionStore& store_;
  VictimPolicy& policy_;
};

}  // namespace hydrant
