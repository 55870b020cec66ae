// Decides which unheld region to evict next: a small interface, so that policies can be measured and
// replaced.
//
// Hits cost nothing and therefore record nothing. Instead the domain *watches* some regions: it shuts their
// gates, so that the next hit on one takes the slow path, reopens it and reports it with touch(). A region
// that is still shut when a victim is wanted has not been used since it was watched, and evicting it needs
// no further fence. This is a page table's accessed bit, sampled by the slow path of each thread.
//
// All calls come under the domain's mutex: no allocation, no call back into the domain.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/mapped_array.hpp"
#include "firehose/hit/region_slot.hpp"

#include <cstddef>
#include <memory>

namespace hydrant {

class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  // A region became evictable.
  virtual void insert(RegionIndex region, size_t len, uint64_t charge) noexcept = 0;
  // A watched region was used, or was proposed as a victim and found held.
  virtual void touch(RegionIndex region) noexcept = 0;
  // A region is no longer there (evicted, invalidated, merged).
  virtual void erase(RegionIndex region) noexcept = 0;
  // Writes up to n regions to watch from now on; returns how many.
  virtual size_t watch(RegionIndex* regions, size_t n) noexcept = 0;
  // Writes up to n victims, best first; returns how many. The domain calls erase() or touch() for those it
  // tried; the others may be proposed again.
  virtual size_t evict(RegionIndex* regions, size_t n) noexcept = 0;
  // As Registrar::adopt().
  virtual void adopt() noexcept {}
  // In the child of a fork, which may have interrupted any of the calls above: forgets all regions without
  // reading them, if it can. The domain then erases each that it has inserted.
  virtual void reset_in_child() noexcept {}
};

// Approximate LRU: two queues. Regions enter the first; the oldest are moved to the second and watched; a
// use moves them back to the end of the first; victims are the oldest of the second. Cost: O(1) each,
// 8 bytes per region of capacity.
class ClockPolicy final : public VictimPolicy {
 public:
  [[nodiscard]] bool map(size_t slots) noexcept;

  void insert(RegionIndex region, size_t len, uint64_t charge) noexcept override;
  void touch(RegionIndex region) noexcept override;
  void erase(RegionIndex region) noexcept override;
  size_t watch(RegionIndex* regions, size_t n) noexcept override;
  size_t evict(RegionIndex* regions, size_t n) noexcept override;
  void reset_in_child() noexcept override;

 private:
  // Queues are rings through links_; their heads lie behind the last region's entry.
  struct Link {
    RegionIndex previous, next;  // 0, 0: in no queue
  };
  void empty_queues() noexcept;
  void push_back(RegionIndex head, RegionIndex region) noexcept;
  void unlink(RegionIndex region) noexcept;

  MappedArray<Link> links_;
  RegionIndex active_ = 0, watched_ = 0;
  size_t active_count_ = 0, watched_count_ = 0;
  MappedArray<uint8_t> is_watched_;
};

// A client's policy behind the same interface; null with a text when the struct is not usable.
std::unique_ptr<VictimPolicy> make_client_policy(const hydrant_policy_t& client) noexcept;

}  // namespace hydrant
